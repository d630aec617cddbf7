#include "pjrt/error.h"

#include "pjrt/call.h"

namespace torch_xla::pjrt {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "OK";
    case ErrorCode::kCancelled:
      return "CANCELLED";
    case ErrorCode::kUnknown:
      return "UNKNOWN";
    case ErrorCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case ErrorCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case ErrorCode::kNotFound:
      return "NOT_FOUND";
    case ErrorCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case ErrorCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case ErrorCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case ErrorCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case ErrorCode::kAborted:
      return "ABORTED";
    case ErrorCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case ErrorCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case ErrorCode::kInternal:
      return "INTERNAL";
    case ErrorCode::kUnavailable:
      return "UNAVAILABLE";
    case ErrorCode::kDataLoss:
      return "DATA_LOSS";
    case ErrorCode::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

Error take_error(const abi::Api* api, abi::Error* error) {
  auto message = make<abi::Error_Message_Args>();
  message.error = error;
  api->Error_Message(&message);
  auto code = make<abi::Error_GetCode_Args>();
  code.error = error;
  code.code = static_cast<uint32_t>(ErrorCode::kUnknown);
  if (abi::Error* second = api->Error_GetCode(&code)) {
    auto free_second = make<abi::Error_Destroy_Args>();
    free_second.error = second;
    api->Error_Destroy(&free_second);
  }
  Error result(static_cast<ErrorCode>(code.code),
               message.message_size > 0 ? std::string(message.message, message.message_size)
                                        : "the plugin gave an error without text");
  auto free_args = make<abi::Error_Destroy_Args>();
  free_args.error = error;
  api->Error_Destroy(&free_args);
  return result;
}

void throw_missing(const char* function) {
  throw Error(ErrorCode::kUnimplemented,
              std::string("the PJRT plugin does not have ") + function + "; a newer one may");
}

}  // namespace torch_xla::pjrt
