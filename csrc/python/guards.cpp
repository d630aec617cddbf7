// What a step sees beside the contents of tensors, read in one pass: see
// torch_xla/_internal/replay.py.

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <bit>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lazy/runtime.h"
#include "python/bindings.h"

namespace torch_xla::python {
namespace {

constexpr size_t kMostPlaces = 10'000;
constexpr uint64_t kNothing = 0;

// One thing that was seen.
struct Entry {
  enum class Kind : uint8_t {
    kWord,    // a number, or the address of what never dies
    kWeak,    // an object, by address; `held` is a weak reference, which tells a dead one
    kObject,  // an object that has no weak references, itself
    kText,    // a str
    kEqual,   // anything else that is compared by ==
  };
  Kind kind;
  uint64_t word;
  py::object held;
};

uint64_t address(const void* object) { return reinterpret_cast<uintptr_t>(object); }

// Two takers of what the pass sees: one writes it down, one compares it with what is written.
// They return whether to go on.
class Recorder {
 public:
  explicit Recorder(std::vector<Entry>& entries) : entries_(entries) {}

  bool word(uint64_t word) { return add(Entry::Kind::kWord, word, {}); }
  bool object(PyObject* object) {
    if (PyObject* weak = PyWeakref_NewRef(object, nullptr)) {
      return add(Entry::Kind::kWeak, address(object), py::reinterpret_steal<py::object>(weak));
    }
    PyErr_Clear();
    return keep(Entry::Kind::kObject, object);
  }
  bool text(PyObject* object) { return keep(Entry::Kind::kText, object); }
  bool equal(PyObject* object) { return keep(Entry::Kind::kEqual, object); }

 private:
  bool keep(Entry::Kind kind, PyObject* object) {
    return add(kind, address(object), py::reinterpret_borrow<py::object>(object));
  }
  bool add(Entry::Kind kind, uint64_t word, py::object held) {
    entries_.push_back({kind, word, std::move(held)});
    return true;
  }

  std::vector<Entry>& entries_;
};

class Comparer {
 public:
  explicit Comparer(const std::vector<Entry>& entries)
      : next_(entries.data()), end_(next_ + entries.size()) {}

  bool word(uint64_t word) {
    const Entry* entry = next(Entry::Kind::kWord);
    return entry && entry->word == word;
  }
  bool object(PyObject* object) {
    if (next_ == end_) return false;
    const Entry& entry = *next_++;
    if (entry.word != address(object)) return false;
    if (entry.kind == Entry::Kind::kObject) return true;
    return entry.kind == Entry::Kind::kWeak &&
           reinterpret_cast<PyWeakReference*>(entry.held.ptr())->wr_object == object;
  }
  bool text(PyObject* object) {
    const Entry* entry = next(Entry::Kind::kText);
    return entry &&
           (entry->word == address(object) || PyUnicode_Compare(entry->held.ptr(), object) == 0);
  }
  // Throws what the objects' own comparison throws.
  bool equal(PyObject* object) {
    const Entry* entry = next(Entry::Kind::kEqual);
    if (!entry) return false;
    const int equal = PyObject_RichCompareBool(entry->held.ptr(), object, Py_EQ);
    if (equal < 0) throw py::error_already_set();
    return equal == 1;
  }
  bool at_end() const { return next_ == end_; }

 private:
  const Entry* next(Entry::Kind kind) {
    return next_ != end_ && next_->kind == kind ? next_++ : nullptr;
  }

  const Entry* next_;
  const Entry* const end_;
};

// Classes that are known by name. Never destroyed: they may outlive the interpreter.
struct Classes {
  PyTypeObject* module = of("torch.nn", "Module");
  PyTypeObject* optimizer = of("torch.optim", "Optimizer");
  PyTypeObject* partial = of("functools", "partial");
  PyTypeObject* replayer = of("torch_xla._internal.replay", "Replayer");

  static PyTypeObject* of(const char* module, const char* name) {
    return reinterpret_cast<PyTypeObject*>(
        py::object(py::module_::import(module).attr(name)).release().ptr());
  }
  static const Classes& get() {
    static const auto* classes = new Classes;
    return *classes;
  }
};

bool is_a(PyObject* object, PyTypeObject* type) { return PyObject_TypeCheck(object, type); }

bool is_simple(PyObject* object) {
  return object == Py_None || PyLong_Check(object) || PyFloat_Check(object) ||
         PyUnicode_Check(object) || PyComplex_Check(object) || THPDtype_Check(object);
}

PyObject* interned(const char* text) { return PyUnicode_InternFromString(text); }

// The attribute, or null.
py::object attribute(PyObject* object, PyObject* name) {
  auto value = py::reinterpret_steal<py::object>(PyObject_GetAttr(object, name));
  if (!value) PyErr_Clear();
  return value;
}

// Its attributes, or null.
py::object dict_of(PyObject* object) {
  auto dict = py::reinterpret_steal<py::object>(PyObject_GenericGetDict(object, nullptr));
  if (!dict) PyErr_Clear();
  return dict;
}

// Whether a class or a function is of that package.
bool is_of(PyObject* object, std::string_view package) {
  static PyObject* const kName = interned("__module__");
  const py::object name = attribute(object, kName);
  if (!name || !PyUnicode_Check(name.ptr())) return false;
  Py_ssize_t size = 0;
  const char* begin = PyUnicode_AsUTF8AndSize(name.ptr(), &size);
  if (!begin) throw py::error_already_set();
  const std::string_view text(begin, static_cast<size_t>(size));
  return text.starts_with(package) &&
         (text.size() == package.size() || text[package.size()] == '.');
}

Py_ssize_t length_or_zero(PyObject* object) {
  if (object == nullptr || object == Py_None) return 0;
  const Py_ssize_t length = PyObject_Length(object);
  if (length < 0) throw py::error_already_set();
  return length;
}

// Calls function(key, value) for each item; false at the first that returns false.
template <class Function>
bool each_item(PyObject* dict, const Function& function) {
  if (PyDict_GET_SIZE(dict) == 0) return true;
  Py_ssize_t position = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (PyDict_Next(dict, &position, &key, &value)) {
    const auto held_key = py::reinterpret_borrow<py::object>(key);
    const auto held_value = py::reinterpret_borrow<py::object>(value);
    if (!function(key, value)) return false;
  }
  return true;
}

// By index, since what is called may change a list.
template <class Function>
bool each_element(PyObject* sequence, const Function& function) {
  const bool is_list = PyList_Check(sequence);
  const auto size = [&] {
    return is_list ? PyList_GET_SIZE(sequence) : PyTuple_GET_SIZE(sequence);
  };
  for (Py_ssize_t i = 0; i < size(); ++i) {
    const auto element = py::reinterpret_borrow<py::object>(
        is_list ? PyList_GET_ITEM(sequence, i) : PyTuple_GET_ITEM(sequence, i));
    if (!function(element.ptr())) return false;
  }
  return true;
}

// The pass. Objects are visited once; a later place of one says which visit that was.
template <class Taker>
class Pass {
 public:
  explicit Pass(Taker& taker) : taker_(taker) { visits_.reserve(256); }

  bool run(PyObject* function, const std::vector<py::object>& arguments) {
    if (!modes()) return false;
    for (const py::object& argument : arguments) {
      if (!this->argument(argument.ptr())) return false;
    }
    return place(function) && visit_all();
  }

 private:
  bool word(uint64_t word) { return taker_.word(word); }
  bool size(Py_ssize_t size) { return taker_.word(static_cast<uint64_t>(size)); }

  bool modes() {
    return word(uint64_t{c10::GradMode::is_enabled()} |
                uint64_t{c10::InferenceMode::is_enabled()} << 1 |
                uint64_t{at::autocast::is_autocast_enabled(at::kXLA)} << 2 |
                static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kXLA)) << 8 |
                static_cast<uint64_t>(lazy::current_device()) << 32);
  }

  // Arguments that are tensors are bound anew in each call: what counts is how they look.
  bool argument(PyObject* object) {
    if (THPVariable_Check(object)) {
      const at::Tensor& tensor = THPVariable_Unpack(object);
      if (!tensor.device().is_xla()) {
        throw py::type_error("a tensor on another device");  // its contents are in the program
      }
      if (!word(uint64_t{tensor.requires_grad()} |
                static_cast<uint64_t>(tensor.scalar_type()) << 8 |
                static_cast<uint64_t>(tensor.device().index()) << 16 |
                static_cast<uint64_t>(tensor.dim()) << 32)) {
        return false;
      }
      for (const int64_t dim : tensor.sizes()) {
        if (!word(static_cast<uint64_t>(dim))) return false;
      }
      for (const int64_t stride : tensor.strides()) {
        if (!word(static_cast<uint64_t>(stride))) return false;
      }
      return true;
    }
    if (PyObject_CheckBuffer(object) && !PyBytes_CheckExact(object)) {
      throw py::type_error("an array on the host");  // the same
    }
    return place(object);
  }

  bool simple(PyObject* object) {
    if (object == Py_None || PyBool_Check(object) || THPDtype_Check(object)) {
      return word(address(object));
    }
    if (PyUnicode_CheckExact(object)) return taker_.text(object);
    if (!word(address(Py_TYPE(object)))) return false;
    if (PyFloat_CheckExact(object)) {
      return word(std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(object)));
    }
    if (PyLong_CheckExact(object)) {
      int overflow = 0;
      const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
      if (!overflow) return word(static_cast<uint64_t>(value));
    }
    return taker_.equal(object);
  }

  // Contents on the device are inputs of the program, contents on the host are numbers in it.
  bool tensor(PyObject* object) {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    uint64_t version = 0;
    if (!tensor.device().is_xla()) {
      if (tensor.is_inference()) throw py::type_error("a tensor that does not count its versions");
      version = static_cast<uint64_t>(tensor._version()) + 1;
    }
    const auto* variable = reinterpret_cast<const THPVariable*>(object);
    return taker_.object(object) && word(version << 1 | uint64_t{tensor.requires_grad()}) &&
           size(length_or_zero(variable->backward_hooks)) &&
           size(length_or_zero(variable->post_accumulate_grad_hooks));
  }

  // Numbers and text themselves, of optimizers their options, of anything else which object it is.
  bool value(PyObject* object) {
    if (PyUnicode_CheckExact(object)) return taker_.text(object);
    if (is_simple(object)) return simple(object);
    if (THPVariable_Check(object)) return tensor(object);
    if (PyTuple_Check(object)) {
      return size(PyTuple_GET_SIZE(object)) &&
             each_element(object, [&](PyObject* item) { return value(item); });
    }
    if (!taker_.object(object)) return false;
    return !is_a(object, Classes::get().optimizer) || optimizer(object);
  }

  bool optimizer(PyObject* object) {
    static PyObject* const kGroups = interned("param_groups");
    const py::object groups = attribute(object, kGroups);
    if (!groups || !PyList_Check(groups.ptr())) return word(kNothing);
    return size(PyList_GET_SIZE(groups.ptr())) &&
           each_element(groups.ptr(), [&](PyObject* group) { return this->group(group); });
  }

  bool group(PyObject* group) {
    if (!PyDict_Check(group)) return taker_.object(group);
    return size(PyDict_GET_SIZE(group)) && each_item(group, [&](PyObject* name, PyObject* option) {
             if (!value(name)) return false;
             if (!PyList_Check(option)) return value(option);
             return size(PyList_GET_SIZE(option)) && each_element(option, [&](PyObject* item) {
                      return THPVariable_Check(item) ? word(address(item)) : value(item);
                    });
           });
  }

  // Where a step finds something: what is there, and what is in it.
  bool place(PyObject* object) {
    const bool is_container = PyDict_Check(object) || PyList_Check(object) || PyTuple_Check(object);
    if (!is_container && !value(object)) return false;
    if (is_simple(object) || THPVariable_Check(object) || PyType_Check(object) ||
        PyModule_Check(object)) {
      return true;
    }
    return visit_later(object);
  }

  bool visit_later(PyObject* object) {
    const auto [entry, fresh] = visits_.emplace(object, visits_.size() + 1);
    if (!fresh) return word(entry->second);
    if (visits_.size() > kMostPlaces) return taker_.object(object);
    pending_.push_back(py::reinterpret_borrow<py::object>(object));
    return word(kNothing);
  }

  bool visit_all() {
    while (!pending_.empty()) {
      const py::object object = std::move(pending_.back());
      pending_.pop_back();
      if (!visit(object.ptr())) return false;
    }
    return true;
  }

  bool visit(PyObject* object) {
    const Classes& classes = Classes::get();
    if (is_a(object, classes.module)) return module(object);
    if (is_a(object, classes.optimizer)) return true;
    if (PyDict_Check(object)) return items(object);
    if (PyList_Check(object) || PyTuple_Check(object)) {
      return size(PyObject_Size(object)) &&
             each_element(object, [&](PyObject* item) { return place(item); });
    }
    if (PyMethod_Check(object)) {
      return place(PyMethod_GET_FUNCTION(object)) && place(PyMethod_GET_SELF(object));
    }
    if (PyFunction_Check(object)) return function(object);
    if (is_a(object, classes.partial)) {
      return attributes(object, {"func", "args", "keywords"});
    }
    // Of another step its function; what it has recorded does not matter.
    if (is_a(object, classes.replayer)) return attributes(object, {"_f"});
    return instance(object);
  }

  bool attributes(PyObject* object, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const auto key = py::reinterpret_steal<py::object>(interned(name));
      const py::object found = attribute(object, key.ptr());
      if (!(found ? place(found.ptr()) : word(kNothing))) return false;
    }
    return true;
  }

  bool items(PyObject* dict) {
    return size(PyDict_GET_SIZE(dict)) && each_item(dict, [&](PyObject* key, PyObject* item) {
             return value(key) && place(item);
           });
  }

  // Its attributes, and numbers and text of its classes.
  bool instance(PyObject* object) {
    const py::object dict = dict_of(object);
    // Loggers count and cache, and decide nothing.
    if (!dict || is_of(reinterpret_cast<PyObject*>(Py_TYPE(object)), "logging")) return true;
    if (!word(address(Py_TYPE(object))) || !items(dict.ptr())) return false;
    PyObject* classes = Py_TYPE(object)->tp_mro;
    return classes == nullptr || each_element(classes, [&](PyObject* item) {
             auto* type = reinterpret_cast<PyTypeObject*>(item);
             if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || type->tp_dict == nullptr) return true;
             return each_item(type->tp_dict, [&](PyObject* name, PyObject* shared) {
               return !is_simple(shared) || (value(name) && simple(shared));
             });
           });
  }

  bool function(PyObject* function) {
    if (PyObject* cells = PyFunction_GET_CLOSURE(function)) {
      const bool same = each_element(cells, [&](PyObject* cell) {
        PyObject* content = PyCell_GET(cell);
        return content ? place(content) : word(kNothing);  // not filled yet
      });
      if (!same) return false;
    }
    if (is_of(function, "torch")) return true;  // what it is decides
    for (PyObject* defaults :
         {PyFunction_GET_DEFAULTS(function), PyFunction_GET_KW_DEFAULTS(function)}) {
      if (!(defaults ? place(defaults) : word(kNothing))) return false;
    }
    PyObject* code = PyFunction_GET_CODE(function);
    return taker_.object(code) && globals(code, PyFunction_GET_GLOBALS(function));
  }

  // Those that the code names, in functions that it defines too.
  bool globals(PyObject* code, PyObject* dict) {
    const auto* object = reinterpret_cast<const PyCodeObject*>(code);
    return each_element(object->co_names,
                        [&](PyObject* name) {
                          PyObject* found = PyDict_GetItemWithError(dict, name);
                          if (!found && PyErr_Occurred()) throw py::error_already_set();
                          return found ? place(found) : word(kNothing);
                        }) &&
           each_element(object->co_consts, [&](PyObject* constant) {
             return !PyCode_Check(constant) || globals(constant, dict);
           });
  }

  // Flags and numbers, and which parameters, buffers, submodules and hooks it has.
  bool module(PyObject* object) {
    static PyObject* const kModules = interned("_modules");
    const py::object dict = dict_of(object);
    if (!dict) return word(kNothing);
    if (!size(PyDict_GET_SIZE(dict.ptr()))) return false;
    return each_item(dict.ptr(), [&](PyObject* name, PyObject* item) {
      if (!value(name)) return false;
      if (PyDict_Check(item)) {
        const bool children = name == kModules;
        return size(PyDict_GET_SIZE(item)) &&
               each_item(item, [&](PyObject* key, PyObject* content) {
                 if (!value(key) || !value(content)) return false;
                 return !children || content == Py_None || visit_later(content);
               });
      }
      if (PyList_Check(item)) {
        return size(PyList_GET_SIZE(item)) &&
               each_element(item, [&](PyObject* element) { return value(element); });
      }
      return value(item);
    });
  }

  Taker& taker_;
  std::unordered_map<PyObject*, uint64_t> visits_;
  std::vector<py::object> pending_;
};

// A collection in the middle of a pass could run code that changes what is being read.
class NoCollection {
 public:
  NoCollection() : was_on_(PyGC_Disable()) {}
  ~NoCollection() {
    if (was_on_) PyGC_Enable();
  }
  NoCollection(const NoCollection&) = delete;

 private:
  const int was_on_;
};

class Guards {
 public:
  Guards(const py::object& function, const std::vector<py::object>& arguments) {
    const NoCollection quiet;
    Recorder recorder(entries_);
    Pass<Recorder>(recorder).run(function.ptr(), arguments);
  }

  bool hold(const py::object& function, const std::vector<py::object>& arguments) const {
    const NoCollection quiet;
    Comparer comparer(entries_);
    return Pass<Comparer>(comparer).run(function.ptr(), arguments) && comparer.at_end();
  }

 private:
  std::vector<Entry> entries_;
};

}  // namespace

void bind_guards(py::module_& m) {
  py::class_<Guards>(m, "_Guards",
                     "What a call of `function` sees: how its arguments look, the modes of torch, "
                     "and the variables, modules and optimizers that it can reach. TypeError for "
                     "what cannot be compared.")
      .def(py::init<const py::object&, const std::vector<py::object>&>(), py::arg("function"),
           py::arg("arguments"))
      .def("hold", &Guards::hold, py::arg("function"), py::arg("arguments"),
           "Whether a call would see the same now.");
}

}  // namespace torch_xla::python
