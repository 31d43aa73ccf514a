// A function with its own stack that can be suspended midway, for the emulator's threads. All
// switches happen on one OS thread. Under AddressSanitizer every switch is announced.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace castor::cuda_emulator {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs `body` from its start, or resumes where it left off. Returns when it leaves or ends. If
  // entered again after its end, runs the `body` given then.
  void Enter(void (*body)());

  // Called from inside: returns to the caller of Enter.
  void Leave();

 private:
  static void Loop();
  void Switch(bool inwards);

  void* stack_;  // lowest address; the first page is a guard
  void (*body_)() = nullptr;
#if defined(__x86_64__)
  void* inside_ = nullptr;  // saved stack pointers
  void* outside_ = nullptr;
#else
  ucontext_t inside_;
  ucontext_t outside_;
#endif
  // For AddressSanitizer: the other side's fake stack, and the outer stack's location.
  void* fake_inside_ = nullptr;
  void* fake_outside_ = nullptr;
  const void* outer_bottom_ = nullptr;
  size_t outer_size_ = 0;
};

}  // namespace castor::cuda_emulator
