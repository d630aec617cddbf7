#include "aten/host_call.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/any.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "aten/kernel.h"
#include "aten/placement.h"
#include "lazy/host_function.h"
#include "lazy/metrics.h"
#include "lazy/program_error.h"
#include "lazy/runtime.h"
#include "lazy/value_checks.h"
#include "pjrt/error.h"
#include "pjrt/ffi.h"

namespace torch_xla::aten {
namespace {

using c10::FunctionSchema;
using c10::IValue;
using c10::OperatorHandle;
using c10::OperatorName;
using torch::jit::Stack;

constexpr const char* kTarget = "torch_xla.aten";

// --- Arguments as attribute words ---

enum class Kind : int64_t {
  kNone,
  kUndefined,
  kTensor,
  kNumber,  // a 0-d tensor that torch made of a Python number
  kInt,
  kReal,
  kComplex,
  kBool,
  kString,
  kList,
};

// Writes arguments; tensors are only counted, and kept in order beside the words.
class ArgumentWriter {
 public:
  // False for what cannot be written: tensors elsewhere, generators, devices.
  bool add(const IValue& value) {
    if (value.isNone()) return tag(Kind::kNone);
    if (value.isTensor()) return add_tensor(value.toTensor());
    if (value.isBool()) return tag(Kind::kBool, value.toBool());
    if (value.isInt()) return tag(Kind::kInt, value.toInt());
    if (value.isDouble()) return tag(Kind::kReal, value.toDouble());
    if (value.isComplexDouble()) {
      const c10::complex<double> number = value.toComplexDouble();
      return tag(Kind::kComplex, number.real(), number.imag());
    }
    if (value.isString()) return tag(Kind::kString, std::string_view(value.toStringRef()));
    if (!value.isList()) return false;
    const auto items = value.toListRef();
    tag(Kind::kList, static_cast<int64_t>(items.size()));
    return std::all_of(items.begin(), items.end(), [&](const IValue& item) { return add(item); });
  }

  const Attributes& words() const { return words_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  template <class... Items>
  bool tag(Kind kind, const Items&... items) {
    words_.add(kind);
    (words_.add(items), ...);
    return true;
  }

  bool add_tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return tag(Kind::kUndefined);
    const bool number = tensor.is_cpu() && tensor.dim() == 0;
    if (!(lazy::is_xla(tensor) || number) || tensor.layout() != c10::kStrided ||
        tensor.scalar_type() == at::kComplexHalf) {
      return false;
    }
    tensors_.push_back(tensor);
    return tag(tensor.unsafeGetTensorImpl()->is_wrapped_number() ? Kind::kNumber : Kind::kTensor);
  }

  Attributes words_;
  std::vector<at::Tensor> tensors_;
};

// Reads them back, with other tensors in the place of the first ones.
class ArgumentReader {
 public:
  ArgumentReader(ir::AttributeReader words, std::span<const at::Tensor> tensors)
      : words_(words), tensors_(tensors) {}

  Stack read(const FunctionSchema& schema) {
    Stack stack;
    for (const c10::Argument& argument : schema.arguments()) stack.push_back(read(argument.type()));
    return stack;
  }

 private:
  IValue read(c10::TypePtr type) {
    switch (words_.enumeration<Kind>()) {
      case Kind::kNone:
        return {};
      case Kind::kUndefined:
        return at::Tensor();
      case Kind::kTensor:
        return next();
      case Kind::kNumber: {
        at::Tensor number = next();
        number.unsafeGetTensorImpl()->set_wrapped_number(true);
        return number;
      }
      case Kind::kInt:
        return words_.integer();
      case Kind::kReal:
        return words_.real();
      case Kind::kComplex: {
        const double real = words_.real();
        return c10::complex<double>(real, words_.real());
      }
      case Kind::kBool:
        return words_.boolean();
      case Kind::kString:
        return words_.string();
      case Kind::kList:
        return read_list(type);
    }
    TORCH_INTERNAL_ASSERT(false, "torch_xla.aten: unknown kind of argument");
  }

  IValue read_list(c10::TypePtr type) {
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    const c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
    c10::impl::GenericList list(element);
    const int64_t size = words_.integer();
    list.reserve(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) list.push_back(read(element));
    return list;
  }

  at::Tensor next() {
    TORCH_INTERNAL_ASSERT(used_ < tensors_.size());
    return tensors_[used_++];
  }

  ir::AttributeReader words_;
  std::span<const at::Tensor> tensors_;
  size_t used_ = 0;
};

// The tensors among an operator's results, undefined ones too, lists item by item.
std::vector<at::Tensor> flat_results(const Stack& results) {
  std::vector<at::Tensor> tensors;
  for (const IValue& result : results) {
    if (result.isTensor()) {
      tensors.push_back(result.toTensor());
    } else {
      for (const IValue& item : result.toListRef()) tensors.push_back(item.toTensor());
    }
  }
  return tensors;
}

// The same results with every tensor mapped by `function`.
template <class Function>
Stack with_tensors(const Stack& results, const Function& function) {
  Stack mapped;
  for (const IValue& result : results) {
    if (result.isTensor()) {
      mapped.push_back(function(result.toTensor()));
      continue;
    }
    c10::List<at::Tensor> list;
    for (const at::Tensor& item : result.toTensorVector()) list.push_back(function(item));
    mapped.push_back(list);
  }
  return mapped;
}

// --- While a program runs ---

// What a thread that has done nothing has: no autograd, autocast, modes or profilers of whoever
// happens to run the program.
const at::ThreadLocalState& fresh_state() {
  static const auto* state = [] {
    const at::ThreadLocalState* made = nullptr;
    std::thread([&] { made = new at::ThreadLocalState; }).join();
    return made;
  }();
  return *state;
}

// All kernels of running programs run here, whichever of the plugin's threads asks. Torch's workers
// (OpenMP) belong to the thread that first needed them; where there are more of them than cores
// they sleep and wake at every loop instead of spinning.
class KernelThread {
 public:
  static KernelThread& get() {
    static auto* thread = new KernelThread;
    return *thread;
  }

  // Blocks until `task` has run. Throws what it threw.
  template <class Task>
  void run(const Task& task) {
    std::packaged_task<void()> packaged(std::cref(task));
    std::future<void> done = packaged.get_future();
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(packaged));
    }
    added_.notify_one();
    done.get();
  }

 private:
  KernelThread() { std::thread(&KernelThread::work, this).detach(); }

  [[noreturn]] void work() {
    while (true) {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [this] { return !tasks_.empty(); });
      std::packaged_task<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      at::init_num_threads();  // torch.set_num_threads may have been called
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::packaged_task<void()>> tasks_;  // requires the lock
};

// The device's memory as a tensor of `dtype`, a number of at::ScalarType.
at::Tensor as_tensor(const pjrt::FfiBuffer& buffer, int64_t dtype) {
  return at::from_blob(buffer.data, {buffer.dims.data(), buffer.dims.size()},
                       at::TensorOptions(static_cast<at::ScalarType>(dtype)));
}

// "aten::histogram.bin_ct": the overload's name, if any, is behind the point.
std::string text_of(const OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + '.' + name.overload_name;
}
OperatorHandle operator_named(std::string_view text) {
  const size_t point = text.find('.');
  const std::string overload(point == text.npos ? "" : text.substr(point + 1));
  return c10::Dispatcher::singleton().findSchemaOrThrow(std::string(text.substr(0, point)).c_str(),
                                                        overload.c_str());
}

// The operator's CPU kernel and nothing around it. Replaces the arguments by the results.
void call_kernel(const OperatorHandle& op, Stack& stack) {
  const at::ThreadLocalStateGuard state(fresh_state());
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::NoGradGuard no_grad;
  op.callBoxed(&stack);
}

// Whether a kernel allocates its dense results itself, so that they can be where the program wants
// them. Not so for LAPACK's, which are transposed.
bool makes_dense_results(const OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name == "aten::convolution" || name == "aten::convolution_backward";
}

std::vector<at::Tensor> defined_results(const OperatorHandle& op, Stack& stack) {
  call_kernel(op, stack);
  std::vector<at::Tensor> results = flat_results(stack);
  std::erase_if(results, [](const at::Tensor& result) { return !result.defined(); });
  stack.clear();
  return results;
}

void check_results(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& targets) {
  TORCH_CHECK(results.size() == targets.size(), "gave ", results.size(), " results, not ",
              targets.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor &result = results[i], &target = targets[i];
    TORCH_CHECK(result.sizes() == target.sizes() && result.scalar_type() == target.scalar_type(),
                "result ", i, " is ", result.toString(), result.sizes(),
                " where its meta function said ", target.toString(), target.sizes());
  }
}

// Runs the kernel so that its results are where they are wanted, if it allocates as it did before.
void compute_in_place(const OperatorHandle& op, Stack arguments, std::string_view key,
                      const std::vector<at::Tensor>& targets) {
  // Of the thread that all kernels run on.
  static auto* orders = new std::unordered_map<std::string, Placement::Order>;
  constexpr size_t kRemembered = 4096;
  if (orders->size() >= kRemembered) orders->clear();
  Placement::Order& order = (*orders)[op.schema().name() + std::string(key)];
  std::vector<Placement::Block> blocks;
  for (const at::Tensor& target : targets) blocks.push_back({target.data_ptr(), target.nbytes()});
  Placement placement(blocks, order);
  Stack stack = std::move(arguments);  // the results too: gone before the placement is
  std::vector<at::Tensor> results = defined_results(op, stack);
  std::vector<void*> addresses;
  for (const at::Tensor& result : results) addresses.push_back(result.data_ptr());
  Placement::Order next = placement.end(addresses);
  check_results(results, targets);
  order = std::move(next);
  const auto is_placed = [&](const at::Tensor& result) {
    return std::any_of(targets.begin(), targets.end(), [&](const at::Tensor& target) {
      return target.data_ptr() == result.storage().data();
    });
  };
  for (size_t i = 0; i < results.size(); ++i) {
    const bool is_there = addresses[i] == targets[i].data_ptr() && results[i].is_contiguous();
    if (is_there) {
      results[i] = targets[i];
    } else if (is_placed(results[i])) {
      results[i] = results[i].clone();  // what is there is overwritten below
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].is_same(targets[i])) targets[i].copy_(results[i]);
  }
}

void compute(const pjrt::FfiCall& call) {
  const std::span<const int64_t> numbers = call.ints_attr("call");
  ir::AttributeReader words(numbers);
  const std::span<const int64_t> result_dtypes = words.list(), operand_dtypes = words.list();
  TORCH_CHECK(operand_dtypes.size() == call.num_args(), "has ", call.num_args(), " operands, not ",
              operand_dtypes.size());
  std::vector<at::Tensor> operands, targets;
  for (size_t i = 0; i < call.num_args(); ++i) {
    operands.push_back(as_tensor(call.arg(i), operand_dtypes[i]));
  }
  for (size_t i = 0; i < result_dtypes.size(); ++i) {
    targets.push_back(as_tensor(call.result(i), result_dtypes[i]));
  }
  const OperatorHandle op = operator_named(call.string_attr("op"));
  Stack stack = ArgumentReader(words, operands).read(op.schema());
  if (makes_dense_results(op)) {
    std::string key(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
    for (const at::Tensor& operand : operands) {
      key.append(reinterpret_cast<const char*>(operand.sizes().data()),
                 operand.sizes().size() * sizeof(int64_t));
    }
    return compute_in_place(op, std::move(stack), key, targets);
  }
  const std::vector<at::Tensor> results = defined_results(op, stack);
  check_results(results, targets);
  for (size_t i = 0; i < results.size(); ++i) targets[i].copy_(results[i]);
}

// What a kernel threw.
struct Failure {
  std::string op, what;
  bool is_linalg = false;
};

std::optional<Failure> failure_of(const pjrt::FfiCall& call) {
  Failure failure{std::string(call.string_attr("op")), ""};
  try {
    KernelThread::get().run([&] { compute(call); });
    return std::nullopt;
  } catch (const c10::LinAlgError& error) {
    failure.is_linalg = true;
    failure.what = error.what_without_backtrace();
  } catch (const c10::Error& error) {
    failure.what = error.what_without_backtrace();
  } catch (const std::exception& error) {
    failure.what = error.what();
  }
  return failure;
}

// The failures of calls that report them (lazy/value_checks.h), by the number that the report has.
// The last ones: of older ones the text is gone.
class Failures {
 public:
  static Failures& get() {
    static auto* failures = new Failures;
    return *failures;
  }

  int64_t add(Failure failure) {
    std::lock_guard lock(mutex_);
    if (list_.size() == kMost) {
      list_.pop_front();
      ++first_;
    }
    list_.push_back(std::move(failure));
    return first_ + static_cast<int64_t>(list_.size()) - 1;
  }
  Failure find(int64_t number) {
    std::lock_guard lock(mutex_);
    if (number < first_) return {"a kernel", "failed"};
    return list_.at(static_cast<size_t>(number - first_));
  }

 private:
  static constexpr size_t kMost = 1024;

  std::mutex mutex_;
  std::deque<Failure> list_;
  int64_t first_ = 0;
};

// Without a report the program fails.
void handle(const pjrt::FfiCall& call) {
  const std::optional<Failure> failure = failure_of(call);
  const bool reports = call.bool_attr("reports");
  if (failure && !reports) {
    throw pjrt::Error(pjrt::ErrorCode::kInvalidArgument,
                      failure->op + ' ' + std::string(call.string_attr("where")) + ": " +
                          (failure->is_linalg ? std::string(lazy::kLinAlgError) : "") +
                          failure->what);
  }
  if (!reports) return;
  const std::span<const int64_t> result_dtypes = ir::AttributeReader(call.ints_attr("call")).list();
  std::array<int64_t, 2> report{};
  if (failure) {
    for (size_t i = 0; i < result_dtypes.size(); ++i) {
      as_tensor(call.result(i), result_dtypes[i]).zero_();
    }
    report = {1, Failures::get().add(*failure)};
  }
  std::memcpy(call.result(result_dtypes.size()).data, report.data(), sizeof report);
}

// The process's plugin, where it is the CPU's and takes custom calls.
bool is_available() {
  static const bool available = lazy::register_host_function(kTarget, pjrt::ffi_entry<handle>);
  return available;
}

// --- While tracing ---

bool is_tensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  const auto list = type->cast<c10::ListType>();
  return list && list->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool is_generator(c10::TypePtr type) {
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::GeneratorType;
}

// Operators whose results' sizes do not depend on what is in tensors, and whose meta function does
// not exist or gives other strides than the kernel. The kernel tells, on zeros.
bool needs_kernel_to_infer(const OperatorName& name) {
  static const auto* names = new std::unordered_set<std::string>{
      "_ctc_loss",
      "_ctc_loss_backward",
      "_fft_c2r",
      "_fft_r2c",
      "_histogramdd_bin_edges",
      "_histogramdd_from_bin_cts",
      "_histogramdd_from_bin_tensors",
      "_linalg_svd",
      "fractional_max_pool3d_backward",
      "geqrf",
      "histogram.bin_ct",
      "histogram.bins_tensor",
      "linalg_eig",
      "linalg_lstsq",
  };
  return names->contains(text_of(name).substr(sizeof("aten::") - 1));
}

bool qualifies(const OperatorHandle& op) {
  using c10::DispatchKey;
  const FunctionSchema& schema = op.schema();
  if (!schema.name().starts_with("aten::") || schema.is_vararg() || schema.returns().empty()) {
    return false;
  }
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info() || is_generator(argument.type())) return false;
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() || !is_tensors(result.type())) return false;
  }
  const bool by_kernel = needs_kernel_to_infer(op.operator_name());
  if (op.hasTag(at::Tag::nondeterministic_seeded) || op.hasTag(at::Tag::data_dependent_output) ||
      (op.hasTag(at::Tag::dynamic_output_shape) && !by_kernel)) {
    return false;
  }
  if (by_kernel) return true;
  for (const DispatchKey key : {DispatchKey::XLA, DispatchKey::CompositeExplicitAutograd,
                                DispatchKey::CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(key)) return false;
  }
  return op.hasKernelForDispatchKey(DispatchKey::CPU) &&
         op.hasKernelForDispatchKey(DispatchKey::Meta);
}

// Operators whose kernels throw because of the numbers that they meet.
bool fails_by_value(const OperatorName& name) {
  static const auto* names = new std::unordered_set<std::string>{
      "_ctc_loss",
      "_histogramdd_bin_edges",
      "_histogramdd_from_bin_cts",
      "_histogramdd_from_bin_tensors",
      "_linalg_eigh",
      "_linalg_eigvals",
      "_linalg_svd",
      "histogram.bin_ct",
      "histogram.bins_tensor",
      "linalg_eig",
      "linalg_lstsq",
  };
  return names->contains(text_of(name).substr(sizeof("aten::") - 1));
}

// Dimensions from the one that varies fastest on.
Dims row_major(size_t rank) {
  Dims order;
  for (auto d = static_cast<int64_t>(rank); d-- > 0;) order.push_back(d);
  return order;
}

ir::Results lower_call(Lowering& l, const Node& n, bool reports) {
  stablehlo::CustomCallOptions options;
  std::string where = ir::describe(n.location());
  for (char& c : where) {
    if (c < ' ' || c > '~' || c == '"' || c == '\\') c = '?';
  }
  std::string words;
  for (const int64_t word : n.attribute_words()) {
    words += (words.empty() ? "" : ", ") + std::to_string(word);
  }
  options.backend_config = std::string("op = \"") + n.op().name + "\", where = \"at " + where +
                           "\", reports = " + (reports ? "true" : "false") +
                           ", call = array<i64: " + words + '>';
  std::vector<stablehlo::TensorType> results;
  for (size_t i = 0; i < n.num_outputs(); ++i) {
    results.push_back({n.output(i).type, Dims(n.output(i).dims)});
  }
  // Of several results XLA for CPU chooses the layouts, for those who read them, unless it is told.
  if (l.num_operands() > 0) {
    for (const auto& operand : l.operands()) {
      options.operand_layouts.push_back(row_major(operand.type().dims.size()));
    }
    for (const auto& type : results) options.result_layouts.push_back(row_major(type.dims.size()));
  }
  return l->custom_call(kTarget, l.operands(), results, options);
}

// The node's op: one for each operator. Its attributes are the words of the custom call.
ir::Results lower(Lowering& l, const Node& n) { return lower_call(l, n, /*reports=*/false); }
// The same for an operator that fails by value: a check, whose last result is the report.
ir::Results lower_reporting(Lowering& l, const Node& n) {
  return lower_call(l, n, /*reports=*/true);
}

void fail_by_value(ir::AttributeReader, const std::string& line, int64_t number) {
  const Failure failure = Failures::get().find(number);
  const std::string what = failure.op + (line.empty() ? "" : " at " + line) + ": " + failure.what;
  TORCH_CHECK_LINALG(!failure.is_linalg, what);
  TORCH_CHECK(false, what);
}

const bool g_registered = [] {
  lazy::register_checks({lower_reporting, fail_by_value});
  return true;
}();

const Op& op_of(const OperatorName& name) {
  static std::mutex mutex;
  static auto* ops = new std::unordered_map<OperatorName, Op*>;  // with their names, for good
  std::lock_guard lock(mutex);
  Op*& op = (*ops)[name];
  if (!op) {
    op = new Op((new std::string(text_of(name)))->c_str(),
                fails_by_value(name) ? lower_reporting : lower);
  }
  return *op;
}

at::Tensor on_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::TensorOptions(tensor.scalar_type()).device(c10::kMeta));
}

// Zeros on CPU; ones where they may be LAPACK's pivots, which count from one and are not checked.
at::Tensor on_cpu(const at::Tensor& tensor) {
  const int fill = tensor.scalar_type() == at::kInt ? 1 : 0;
  const size_t bytes =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
  const auto count = static_cast<int64_t>(bytes / tensor.itemsize());
  return at::full({count}, fill, at::TensorOptions(tensor.scalar_type()))
      .as_strided(tensor.sizes(), tensor.strides());
}

bool is_usual_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
}

// What a call's results are like, as tensors on the meta device: what the meta function says, or
// for dtypes that a CPU kernel may not take, what the kernel itself makes of zeros. Throws what
// either throws.
Stack infer(const OperatorHandle& op, const ArgumentWriter& arguments) {
  const auto& tensors = arguments.tensors();
  const bool by_meta =
      !needs_kernel_to_infer(op.operator_name()) &&
      std::any_of(tensors.begin(), tensors.end(), is_usual_float) &&
      std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
        return is_usual_float(tensor) || at::isIntegralType(tensor.scalar_type(), true);
      });
  std::vector<at::Tensor> operands;
  for (const at::Tensor& tensor : tensors) {
    operands.push_back(by_meta ? on_meta(tensor) : on_cpu(tensor));
  }
  Stack stack =
      ArgumentReader(ir::AttributeReader(arguments.words().words()), operands).read(op.schema());
  call_kernel(op, stack);
  for (const at::Tensor& result : flat_results(stack)) {
    if (!result.defined()) continue;
    TORCH_CHECK(result.layout() == c10::kStrided, "not a strided tensor");
    lazy::element_type(result.scalar_type());
  }
  return with_tensors(stack, on_meta);
}

// The same, remembered; null where it throws: the host then computes, and raises CPU's error.
std::shared_ptr<const Stack> inferred(const OperatorHandle& op, const ArgumentWriter& arguments) {
  std::string key = text_of(op.operator_name());
  const auto add = [&](std::span<const int64_t> numbers) {
    key.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
  };
  add(arguments.words().words());
  for (const at::Tensor& tensor : arguments.tensors()) {
    const std::array<int64_t, 2> head{static_cast<int64_t>(tensor.scalar_type()), tensor.dim()};
    add(head);
    add(span_of(tensor.sizes()));
    add(span_of(tensor.strides()));
  }
  constexpr size_t kRemembered = 4096;
  static std::mutex mutex;
  static auto* known = new std::unordered_map<std::string, std::shared_ptr<const Stack>>;
  {
    std::lock_guard lock(mutex);
    if (const auto entry = known->find(key); entry != known->end()) return entry->second;
  }
  std::shared_ptr<const Stack> results;
  try {
    results = std::make_shared<const Stack>(infer(op, arguments));
  } catch (const std::exception&) {
    results = nullptr;
  }
  std::lock_guard lock(mutex);
  if (known->size() >= kRemembered) known->clear();
  return (*known)[key] = results;
}

at::Tensor wrap(Value value, const at::Tensor& meta, c10::Device device) {
  const bool overlaps = at::has_internal_overlap(meta) == at::MemOverlap::Yes;
  return lazy::make_strided(
      std::move(value),
      overlaps ? at::infer_dense_strides(meta.sizes(), meta.strides()) : meta.strides().vec(),
      device);
}

ir::NodePtr make_node(const OperatorHandle& op, const ArgumentWriter& arguments,
                      const std::vector<int64_t>& result_dtypes, std::span<const ShapeRef> shapes) {
  std::vector<Value> operands;
  std::vector<int64_t> operand_dtypes;
  for (const at::Tensor& tensor : arguments.tensors()) {
    operands.push_back(value_of(tensor));
    operand_dtypes.push_back(static_cast<int64_t>(tensor.scalar_type()));
  }
  Attributes attributes = Attributes::of(result_dtypes, operand_dtypes);
  for (const int64_t word : arguments.words().words()) attributes.add(word);
  const Op& made = op_of(op.operator_name());
  return fails_by_value(op.operator_name()) ? lazy::make_check(made, operands, attributes, shapes)
                                            : Node::make(made, operands, attributes, shapes);
}

// Makes the node, and xla tensors of it in the places of those on the meta device.
Stack record(const OperatorHandle& op, const ArgumentWriter& arguments, const Stack& metas,
             c10::Device device) {
  std::vector<int64_t> dtypes;
  std::vector<ShapeRef> shapes;
  for (const at::Tensor& meta : flat_results(metas)) {
    if (!meta.defined()) continue;
    dtypes.push_back(static_cast<int64_t>(meta.scalar_type()));
    shapes.push_back({element_type(meta), span_of(meta.sizes())});
  }
  const ir::NodePtr node = make_node(op, arguments, dtypes, shapes);
  uint32_t next = 0;
  return with_tensors(metas, [&](const at::Tensor& meta) {
    if (!meta.defined()) return at::Tensor();
    const uint32_t i = next++;
    // Empty ones need no computing.
    return wrap(meta.numel() ? Value(node, i) : lazy::full(0, shapes[i].type, shapes[i].dims), meta,
                device);
  });
}

// linalg.inv_ex(check_errors=True) and its like look at their last result, `info`.
std::optional<size_t> checks_errors(const FunctionSchema& schema, at::ArrayRef<IValue> arguments) {
  const auto index = schema.argumentIndexWithName("check_errors");
  if (!index || !arguments[static_cast<size_t>(*index)].toBool()) return std::nullopt;
  return static_cast<size_t>(*index);
}

// linalg.lstsq gives residuals, or none, by the rank that it finds in tall matrices.
bool depends_on_data(const OperatorName& name, at::ArrayRef<IValue> arguments) {
  static const OperatorName lstsq("aten::linalg_lstsq", "");
  if (!(name == lstsq)) return false;
  const at::Tensor& a = arguments[0].toTensor();
  const IValue& driver = arguments[3];
  return a.dim() >= 2 && a.size(-2) > a.size(-1) &&
         !(driver.isString() && driver.toStringRef() == "gels");
}

}  // namespace

bool is_host_callable(const OperatorHandle& op) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<OperatorName, bool>;
  if (!is_available()) return false;
  std::lock_guard lock(mutex);
  const auto [entry, fresh] = known->emplace(op.operator_name(), false);
  if (fresh) entry->second = qualifies(op);
  return entry->second;
}

bool prefers_host_call(const OperatorHandle& op) {
  static const OperatorName grid_sampler("aten::grid_sampler_2d", "");
  return op.operator_name() == grid_sampler && is_host_callable(op);
}

bool run_host_call(const OperatorHandle& op, Stack* stack) {
  if (!is_host_callable(op)) return false;
  const FunctionSchema& schema = op.schema();
  const auto arguments = torch::jit::last(*stack, schema.arguments().size());
  if (depends_on_data(op.operator_name(), arguments)) return false;
  const std::optional<size_t> checked = checks_errors(schema, arguments);
  ArgumentWriter writer;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!writer.add(checked == i ? IValue(false) : arguments[i])) return false;
  }
  std::optional<c10::Device> device;
  for (const at::Tensor& tensor : writer.tensors()) {
    if (!lazy::is_xla(tensor)) continue;
    if (device && *device != tensor.device()) return false;
    device = tensor.device();
  }
  if (!device) return false;
  const std::shared_ptr<const Stack> metas = inferred(op, writer);
  if (!metas) return false;
  Stack results = record(op, writer, *metas, *device);
  lazy::metrics::count("xla::host_call." + schema.name().substr(sizeof("aten::") - 1));
  if (checked && at::any(results.back().toTensor()).item<bool>()) {
    at::native::cpu_fallback(op, stack, /*error_on_views=*/true);  // raises what CPU raises
    return true;
  }
  torch::jit::drop(*stack, arguments.size());
  for (IValue& result : results) stack->push_back(std::move(result));
  return true;
}

ir::NodePtr host_node(const char* name, const Stack& arguments, std::span<const ShapeRef> shapes) {
  if (!is_available()) return {};
  ArgumentWriter writer;
  for (const IValue& argument : arguments) TORCH_INTERNAL_ASSERT(writer.add(argument));
  std::vector<int64_t> dtypes;
  for (const ShapeRef& shape : shapes) {
    dtypes.push_back(static_cast<int64_t>(lazy::scalar_type(shape.type)));
  }
  lazy::metrics::count(std::string("xla::host_call.") + (name + sizeof("aten::") - 1));
  return make_node(operator_named(name), writer, dtypes, shapes);
}

}  // namespace torch_xla::aten
