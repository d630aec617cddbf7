#include "lazy/recording.h"

namespace torch_xla::lazy {

std::vector<LaunchRecord>*& current_recording() {
  static std::vector<LaunchRecord>* recording = nullptr;
  return recording;
}

}  // namespace torch_xla::lazy
