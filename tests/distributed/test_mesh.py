"""Meshes and partition specs: what needs no device."""

import pickle

import numpy as np
import pytest

import torch_xla.distributed.spmd as xs


def spec(mesh, *entries):
    return str(mesh.get_op_sharding(entries))


MESH = xs.Mesh(range(4), (2, 2), ("x", "y"))


@pytest.mark.parametrize(
    "entries, text",
    [
        (("x", "y"), "{devices=[2,2]0,1,2,3}"),
        (("x", None), "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"),
        ((None, None), "{replicated}"),
        ((("x", "y"), None), "{devices=[4,1]0,1,2,3}"),
        ((("y", "x"), None), "{devices=[4,1]0,2,1,3}"),
        ((None, "y"), "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}"),
        ((0, 1), "{devices=[2,2]0,1,2,3}"),
        ((1, 0), "{devices=[2,2]0,2,1,3}"),
        (((0, "y"),), "{devices=[4]0,1,2,3}"),
        ((np.int64(0), None), "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"),
        ((["x"], None), "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"),
        (((), None), "{replicated}"),
        ((), "{replicated}"),
    ],
    ids=str,
)
def test_partition_specs(entries, text):
    assert spec(MESH, *entries) == text


def test_any_order_of_devices():
    mesh = xs.Mesh([3, 1, 2, 0], (2, 2), ("x", "y"))
    assert spec(mesh, "x", "y") == "{devices=[2,2]3,1,2,0}"
    assert mesh.get_logical_mesh().tolist() == [[3, 1], [2, 0]]


def test_axes_of_size_one_cut_nothing():
    mesh = xs.Mesh(range(4), (1, 4), ("x", "y"))
    assert spec(mesh, "x", None) == "{replicated}"


def test_axes_without_names():
    mesh = xs.Mesh(range(4), (2, 2))
    assert spec(mesh, 0, 1) == "{devices=[2,2]0,1,2,3}"
    assert dict(mesh.shape()) == {0: 2, 1: 2}
    assert mesh.get_axis_name_idx("x") is None
    with pytest.raises(ValueError, match="no axis 'x'"):
        spec(mesh, "x")


def test_what_a_mesh_says():
    assert MESH.size() == 4
    assert list(MESH.shape().items()) == [("x", 2), ("y", 2)]
    assert MESH.get_axis_name_idx("y") == 1
    assert MESH.get_axis_name_idx("z") is None
    assert MESH.device_ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "entries, message",
    [
        (("z",), r"no axis 'z'; its axes are \{'x': 2, 'y': 2\}"),
        ((2,), "no axis 2"),
        ((-1,), "no axis -1"),
        (("x", "x"), "'x' cuts more than once"),
        ((("x", "x"),), "'x' cuts more than once"),
        ((0, "x"), "'x' cuts more than once"),
        ((1.5,), r"or a tuple of axes; got 1\.5"),
        ((True,), "got True"),
    ],
    ids=str,
)
def test_specs_that_are_none(entries, message):
    with pytest.raises(ValueError, match=message):
        spec(MESH, *entries)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((range(4), (2, 3), ("x", "y")), "6 places for 4 devices"),
        ((range(4), (2, 2), ("x",)), "1 axis names"),
        ((range(4), (2, 2), ("x", "x")), "must differ"),
        (([0, 0, 1, 2], (4,), ("x",)), "each once"),
        (([1, 2, 3, 4], (4,), ("x",)), "0 to 3"),
        (([], (0,), ("x",)), "no devices"),
        (([0.5, 1.0], (2,), ("x",)), "whole numbers"),
        ((range(8), (-4, -2), ("x", "y")), "at least one device"),
    ],
    ids=str,
)
def test_meshes_that_are_none(arguments, message):
    with pytest.raises(ValueError, match=message):
        xs.Mesh(*arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((range(4), None), "the size of each axis, got None"),
        ((range(4), 4), "the size of each axis, got 4"),
        ((range(4), "4"), "the size of each axis, got '4'"),
        ((range(4), (2.0, 2)), "'float' object"),
        ((range(4), (2, 2), (1, 0)), "names are strings"),
    ],
    ids=str,
)
def test_arguments_of_other_kinds(arguments, message):
    with pytest.raises(TypeError, match=message):
        xs.Mesh(*arguments)


def test_text_and_back():
    assert xs.Mesh.from_str(str(MESH)) == MESH
    assert eval(repr(MESH), {"Mesh": xs.Mesh}) == MESH
    for text in ("", "4", "{'device_ids': [0]}", "Mesh"):
        with pytest.raises(ValueError, match="no text of a mesh"):
            xs.Mesh.from_str(text)


def test_equal_meshes():
    assert xs.Mesh(np.arange(4).reshape(2, 2), [2, 2], ["x", "y"]) == MESH
    assert len({MESH, xs.Mesh(range(4), (2, 2), ("x", "y")), xs.Mesh(range(4), (4,))}) == 2
    assert pickle.loads(pickle.dumps(MESH)) == MESH


def test_shardings_of_specs():
    sharding = MESH.get_op_sharding(("x", None))
    assert sharding == xs.Mesh(range(4), (2, 2), ("a", "b")).get_op_sharding(("a", None))
    assert sharding != MESH.get_op_sharding((None, "x"))
    assert pickle.loads(pickle.dumps(sharding)) == sharding
    assert sharding.tiles == [2, 1]
    assert sharding.tile_of == [0, 0, 1, 1]
    assert [sharding.ranges([5, 2], d) for d in (0, 2)] == [[(0, 3), (0, 2)], [(3, 5), (0, 2)]]


def devices_told(monkeypatch, attributes):
    monkeypatch.setattr(
        "torch_xla.distributed.spmd.mesh.runtime.global_runtime_device_attributes",
        lambda: attributes,
    )


def test_hybrid_meshes_by_slice(monkeypatch):
    # Two slices of 2x2 chips, told in no order.
    attributes = [
        {"slice_index": s, "coords": (x, y, 0), "core_on_chip": 0, "process_index": 0}
        for x in (1, 0)
        for s in (1, 0)
        for y in (0, 1)
    ]
    devices_told(monkeypatch, attributes)
    mesh = xs.HybridMesh(ici_mesh_shape=(2, 2), dcn_mesh_shape=(2, 1), axis_names=("x", "y"))
    assert mesh.shape() == {"x": 4, "y": 2}
    places = [attributes[d] for d in mesh.get_logical_mesh().reshape(-1)]
    assert [p["slice_index"] for p in places] == [0] * 4 + [1] * 4
    assert [p["coords"][:2] for p in places[:4]] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    # An axis that is 1 between slices stays in one.
    mesh = xs.HybridMesh(ici_mesh_shape=(1, 4), dcn_mesh_shape=(2, 1))
    for devices in mesh.get_logical_mesh():
        assert len({attributes[d]["slice_index"] for d in devices}) == 1
    with pytest.raises(ValueError, match="there are 2 slices, dcn_mesh_shape has places for 4"):
        xs.HybridMesh(ici_mesh_shape=(2,), dcn_mesh_shape=(4,))
    with pytest.raises(ValueError, match="a slice has 4 devices"):
        xs.HybridMesh(ici_mesh_shape=(2,), dcn_mesh_shape=(2,))


def test_hybrid_meshes_by_process(monkeypatch):
    attributes = [{"process_index": n % 2, "name": f"CUDA:{n}"} for n in range(8)]
    devices_told(monkeypatch, attributes)
    mesh = xs.HybridMesh(ici_mesh_shape=(1, 4), dcn_mesh_shape=(2, 1))
    assert mesh.get_logical_mesh().tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    # One slice over two processes: by processes.
    devices_told(monkeypatch, [{"slice_index": 0, **a} for a in attributes])
    assert xs.HybridMesh(ici_mesh_shape=(1, 4), dcn_mesh_shape=(2, 1)) == mesh


def test_hybrid_meshes_where_nobody_tells(monkeypatch):
    devices_told(monkeypatch, [{"process_index": 0}] * 8)
    mesh = xs.HybridMesh(ici_mesh_shape=(2, 2), dcn_mesh_shape=(1, 2))
    assert mesh.get_logical_mesh().tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]
    with pytest.raises(ValueError, match="8 devices are not 3 equal slices"):
        xs.HybridMesh(ici_mesh_shape=(2,), dcn_mesh_shape=(3,))
    with pytest.raises(ValueError, match="differ in length"):
        xs.HybridMesh(ici_mesh_shape=(8,), dcn_mesh_shape=(1, 1))


def test_the_global_mesh():
    assert xs.get_global_mesh() is None
    xs.set_global_mesh(MESH)
    try:
        assert xs.get_global_mesh() is MESH
        with pytest.raises(TypeError, match="not tuple"):
            xs.set_global_mesh((2, 2))
    finally:
        xs.set_global_mesh(None)


@pytest.mark.parametrize(
    "text, devices",
    [
        ("{replicated}", None),
        ("{maximal device=3}", [3]),
        ("{devices=[2,2]<=[4]}", [[[0], [1]], [[2], [3]]]),
        ("{devices=[2,2]<=[2,2]T(1,0)}", [[[0], [2]], [[1], [3]]]),
        ("{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}", [[[0, 1]], [[2, 3]]]),
        ("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}", [[[0, 2], [1, 3]]]),
    ],
)
def test_reading_shardings(text, devices):
    from torch_xla.distributed.spmd.debugging import parse_sharding

    read = parse_sharding(text)
    assert (None if read is None else read.tolist()) == devices


@pytest.mark.parametrize("text", ["", "{manual}", "{devices=[2,2]0,1,2}", "{devices=[2]<=[3]}"])
def test_texts_that_are_no_shardings(text):
    with pytest.raises(ValueError, match="sharding"):
        xs.visualize_sharding(text)


def test_pictures(capsys):
    picture = xs.visualize_sharding(
        "{devices=[2,2,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}", use_color=False
    )
    assert capsys.readouterr().out == picture + "\n"
    assert picture.splitlines() == [
        "┌───────────┬───────────┐",
        "│  CPU 0,1  │  CPU 2,3  │",
        "├───────────┼───────────┤",
        "│  CPU 4,5  │  CPU 6,7  │",
        "└───────────┴───────────┘",
    ]


def test_pictures_fit_the_page(capsys):
    picture = xs.visualize_sharding("{devices=[1,16]<=[16]}", use_color=False, max_width=70)
    assert max(map(len, picture.splitlines())) <= 70
    assert "15" in picture
    capsys.readouterr()


def test_pictures_of_more_dimensions(capsys):
    picture = xs.visualize_sharding("{devices=[2,2,2]<=[8]}", use_color=False)
    assert "(1, 0, 1): CPU 5" in picture
    capsys.readouterr()


def test_pictures_in_color(capsys):
    pytest.importorskip("rich")
    plain = xs.visualize_sharding("{devices=[2,1]0,1}")
    out = capsys.readouterr().out
    assert "CPU 0" in out and "CPU 1" in out and "CPU 1" in plain


def test_pictures_as_images(tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    from torch_xla.distributed.spmd.debugging import plot_sharding

    axes = plot_sharding("{devices=[2,4]<=[8]}")
    assert len(axes.patches) == 8
    assert [text.get_text() for text in axes.texts][-1] == "CPU 7"
    axes.figure.savefig(tmp_path / "sharding.png")
    assert (tmp_path / "sharding.png").stat().st_size > 0
