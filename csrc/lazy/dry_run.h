#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/node.h"
#include "ir/sharding.h"
#include "pjrt/option.h"

namespace torch_xla::lazy {

struct Program;

// A dry run traces a program for devices that are not here, to have it compiled elsewhere. Arrays
// have shapes, shardings and owners as ever, and no contents: what is uploaded stays on the host,
// what a program would compute is a promise that is never kept. Reading one throws.

// An array that a program takes or gives.
struct DryArray {
  std::string shape;            // in HLO's spelling, f32[128,64]: of the whole
  int64_t bytes_on_device = 0;  // of the part on each device, row-major and without gaps
  std::string where;            // the Python line that made it; empty if unknown
  std::string sharding;         // HLO's spelling; empty: on one device, or as XLA sees fit
  bool donated = false;         // an argument whose memory the results may take
};

struct DryProgram {
  std::string name;
  std::string stablehlo;
  // The mesh that most of it is cut by: names and sizes of the axes, and the device that each of
  // its partitions is. Without axes: one device.
  std::vector<std::string> axes;
  std::vector<int64_t> mesh_shape;
  std::vector<int64_t> devices = {0};
  std::map<std::string, pjrt::Option> overrides;  // XLA flags the user set for it
  std::vector<DryArray> arguments;
  std::vector<DryArray> results;
};

// Turns it on for the rest of the process. `listener` is told of each program instead of a launch,
// in the thread that syncs. Throws c10::Error once the runtime is in use.
void start_dry_run(std::function<void(const DryProgram&)> listener);
bool is_dry_run();  // and not InEarnest
// The program of a graph, with its settings. `placement`: empty outside SPMD mode. `made`: as
// program_for() gave it.
DryProgram describe(const ir::Graph& graph, std::span<const ir::Value> roots,
                    const std::vector<bool>& donated, const ir::Placement& placement,
                    const Program& made);
void tell_of_program(const DryProgram& program);

// While it lives, this thread computes in earnest: small things that a script asks of data which is
// on the host, like whether a mask is all true.
class InEarnest {
 public:
  InEarnest();
  ~InEarnest();
  InEarnest(const InEarnest&) = delete;
  InEarnest& operator=(const InEarnest&) = delete;

 private:
  const bool before_;
};

// What is thrown by reads of an array that would be there had a program run.
std::exception_ptr not_computed();

// A value of this shape without contents, for parameters that are never materialised.
ir::Value described(ir::ShapeRef shape, c10::Device device);

// Forgets how what is pending is computed, as if it had been: what a model's parameters begin with
// is no part of the step.
void settle(c10::Device device);

}  // namespace torch_xla::lazy
