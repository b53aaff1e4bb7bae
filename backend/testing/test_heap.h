// The process's operator new, watched: for tests of what allocates, and of what happens when it
// can't.
//
// Linking this library replaces operator new and delete of the whole program, so such a test is a
// program of its own. Every form is replaced that the program could mix: sanitizers insist on
// matching pairs.
#ifndef SEQ2SEQ_BACKEND_TESTING_TEST_HEAP_H_
#define SEQ2SEQ_BACKEND_TESTING_TEST_HEAP_H_

#include <atomic>
#include <cstdint>

namespace seq2seq {

struct TestHeap {
  std::atomic<bool> counting = true;
  std::atomic<int64_t> allocations = 0;  // calls of operator new while counting
  std::atomic<bool> exhausted = false;   // operator new fails
};

// The one of this process.
TestHeap& GetTestHeap();

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_TEST_HEAP_H_
