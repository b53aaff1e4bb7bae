// Drives whose instances are gone and that still have sequences.
#ifndef SEQ2SEQ_BACKEND_TRITON_RETIRED_DRIVES_H_
#define SEQ2SEQ_BACKEND_TRITON_RETIRED_DRIVES_H_

#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "backend/triton/instance_drive.h"

namespace seq2seq {

// The server takes an instance away, when a model's configuration asks for fewer, without waiting
// for its requests. They are served to their end here, beside the instances that are left. Safe
// from any thread.
class RetiredDrives {
 public:
  RetiredDrives() = default;
  ~RetiredDrives();  // what still runs fails with kUnavailable
  RetiredDrives(const RetiredDrives&) = delete;
  RetiredDrives& operator=(const RetiredDrives&) = delete;

  // Takes no further requests into `drive`, and lets it go once it has no sequence. Waits for that
  // for 20 ms at most, and then for the engine to go. If the system gives no thread to wait longer,
  // its sequences fail with kUnavailable.
  void Add(std::unique_ptr<InstanceDrive> drive) noexcept;

 private:
  struct Retired {
    std::unique_ptr<InstanceDrive> drive;  // null once it is over
    std::thread thread;                    // waits for that, and lets it go
    bool done = false;                     // the thread has nothing left to do
  };

  void WaitFor(Retired* retired);

  std::mutex mutex_;
  std::list<Retired> retired_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_RETIRED_DRIVES_H_
