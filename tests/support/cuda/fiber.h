// A function that runs on a stack of its own and can leave in the middle, for the emulator's
// threads. Entered and left on one OS thread. Under AddressSanitizer every switch is announced.
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

  // Runs `body` from its start, or goes on where it left. Returns when it leaves or ends; entering
  // it again after its end runs the `body` given then.
  void Enter(void (*body)());

  // Called inside: returns to whoever entered.
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
  // AddressSanitizer's own: the other side's fake stack, and where the outer stack lies.
  void* fake_inside_ = nullptr;
  void* fake_outside_ = nullptr;
  const void* outer_bottom_ = nullptr;
  size_t outer_size_ = 0;
};

}  // namespace castor::cuda_emulator
