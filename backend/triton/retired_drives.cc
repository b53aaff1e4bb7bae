#include "backend/triton/retired_drives.h"

#include <chrono>
#include <exception>
#include <utility>

namespace seq2seq {
namespace {

// An idle scheduler is over in much less: then no thread is needed.
constexpr std::chrono::milliseconds kShortWait(20);
constexpr std::chrono::hours kLongWait(1);

}  // namespace

RetiredDrives::~RetiredDrives() {
  {
    std::lock_guard lock(mutex_);
    for (const Retired& retired : retired_) {
      if (retired.drive != nullptr) retired.drive->scheduler->Stop();
    }
  }
  for (Retired& retired : retired_) retired.thread.join();
}

void RetiredDrives::Add(std::unique_ptr<InstanceDrive> drive) noexcept {
  drive->scheduler->Retire();
  if (drive->scheduler->WaitUntilOver(kShortWait)) return;
  std::list<Retired> added;
  try {
    added.emplace_back();
    added.front().drive = std::move(drive);
    added.front().thread = std::thread([this, retired = &added.front()] { WaitFor(retired); });
  } catch (const std::exception&) {
    return;  // the drive goes, and fails its sequences
  }
  std::lock_guard lock(mutex_);
  retired_.remove_if([](Retired& retired) {
    if (retired.done) retired.thread.join();
    return retired.done;
  });
  retired_.splice(retired_.end(), added);
}

void RetiredDrives::WaitFor(Retired* retired) {
  Scheduler& scheduler = *retired->drive->scheduler;
  while (!scheduler.WaitUntilOver(kLongWait)) {
  }
  std::unique_ptr<InstanceDrive> over;
  {
    std::lock_guard lock(mutex_);
    over = std::exchange(retired->drive, nullptr);
  }
  over.reset();
  std::lock_guard lock(mutex_);
  retired->done = true;
}

}  // namespace seq2seq
