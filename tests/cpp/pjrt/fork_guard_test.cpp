#include "pjrt/fork_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include "pjrt/plugins.h"

namespace torch_xla::pjrt::testing {
namespace {

class ForkGuardTest : public PluginTest {};
TORCH_XLA_FOR_EACH_PLUGIN(ForkGuardTest);

// Runs `check` in a child and gives what it returned.
template <class Check>
int in_child(Check check) {
  const pid_t child = fork();
  if (child == 0) _exit(check());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

template <class Action>
bool refused(Action action) {
  try {
    action();
    return false;
  } catch (const Error& error) {
    return error.code() == ErrorCode::kFailedPrecondition && contains(error.what(), "spawn");
  }
}

TEST_P(ForkGuardTest, ChildGetsErrorsAndParentGoesOn) {
  auto program = client()->compile(
      "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }");
  auto buffer = floats({1, 2});
  Event event = buffer->ready();
  Buffer* args[] = {buffer.get()};
  const int result = in_child([&] {
    float target[2];
    if (!forked_with_client()) return 1;
    if (!refused([&] { program->execute(args); })) return 2;
    if (!refused([&] { buffer->copy_to_host(target, sizeof target); })) return 3;
    if (!refused([&] { floats({1}); })) return 4;
    if (!refused([&] { Client::create(plugin()); })) return 5;
    if (!refused([&] { event.wait(); })) return 6;
    if (!refused([&] { client()->compile(""); })) return 7;
    // Destroying the parent's objects must neither hang nor abort.
    buffer.reset();
    program.reset();
    event = Event();
    return in_child([] { return forked_with_client() ? 42 : 8; });
  });
  EXPECT_EQ(result, 42);
  EXPECT_FALSE(forked_with_client());
  EXPECT_EQ(download(*program->execute(args)[0]), (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace torch_xla::pjrt::testing
