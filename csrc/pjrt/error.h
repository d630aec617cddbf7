// The one exception type of this layer.
#pragma once

#include <stdexcept>
#include <string>

namespace torch_xla::pjrt {

// Values are those of PJRT_Error_Code, which are those of absl::StatusCode.
enum class ErrorCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "RESOURCE_EXHAUSTED", "UNKNOWN" for a value outside the enum.
const char* to_string(ErrorCode code);

// what() is the plugin's own text where the error comes from a plugin.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace torch_xla::pjrt
