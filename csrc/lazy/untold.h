#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <memory>

namespace torch_xla::lazy {

class CheckReport;

// Errors of what runs behind the caller. Each read of a tensor that is to blame throws them; but
// there may be none left, or none that is read. So the next read that launches something, the next
// sync, wait or replayed call throws an error that nobody was told of, once.

// Of a launch on the thread behind that cost somebody's contents.
void note_untold(c10::Device device, std::exception_ptr error);
// Of the checks of a launch that is on its way.
void watch(c10::Device device, std::shared_ptr<CheckReport> report);

// An array could not be computed, as is known now; and how many since the process began.
void note_failure();
uint64_t num_failures();

// Somebody is being told.
void note_told(const std::exception_ptr& error);

// The oldest error of the device that nobody was told of, and with this somebody is; null if there
// is none. Looks at launches that are over, or waits for all of them.
std::exception_ptr take_untold(c10::Device device, bool wait);

}  // namespace torch_xla::lazy
