#include "tests/support/cuda/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#define CASTOR_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CASTOR_FIBER_ASAN 1
#endif
#endif
#ifdef CASTOR_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Saves the callee-saved registers, stores the stack pointer at *save, and continues at `to`.
// ucontext would work too, but makes two system calls per switch.
extern "C" void castor_switch_stack(void** save, void* to);
asm(R"(
.text
.p2align 4
.type castor_switch_stack, @function
castor_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size castor_switch_stack, .-castor_switch_stack
)");
#endif

namespace castor::cuda_emulator {
namespace {

constexpr size_t kPage = 4096;
#ifdef CASTOR_FIBER_ASAN
constexpr size_t kStack = 64 * kPage;
#else
constexpr size_t kStack = 32 * kPage;
#endif

Fiber* g_entered = nullptr;

}  // namespace

Fiber::Fiber() {
  stack_ = mmap(nullptr, kStack + kPage, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack_ == MAP_FAILED || mprotect(stack_, kPage, PROT_NONE) != 0) std::abort();
  unsigned char* const top = static_cast<unsigned char*>(stack_) + kPage + kStack;
#if defined(__x86_64__)
  // As if Loop had called castor_switch_stack: six registers, then the return address. At that
  // point the stack is 8 bytes off a multiple of 16, as after any call.
  auto* const frame = reinterpret_cast<uintptr_t*>(top) - 8;
  std::memset(frame, 0, 8 * sizeof(uintptr_t));
  frame[6] = reinterpret_cast<uintptr_t>(&Fiber::Loop);
  inside_ = frame;
#else
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = top - kStack;
  inside_.uc_stack.ss_size = kStack;
  makecontext(&inside_, &Fiber::Loop, 0);
#endif
}

Fiber::~Fiber() { munmap(stack_, kStack + kPage); }

void Fiber::Switch(bool inwards) {
#ifdef CASTOR_FIBER_ASAN
  if (inwards) {
    __sanitizer_start_switch_fiber(&fake_outside_, static_cast<unsigned char*>(stack_) + kPage,
                                   kStack);
  } else {
    __sanitizer_start_switch_fiber(&fake_inside_, outer_bottom_, outer_size_);
  }
#endif
#if defined(__x86_64__)
  if (inwards) {
    castor_switch_stack(&outside_, inside_);
  } else {
    castor_switch_stack(&inside_, outside_);
  }
#else
  if (inwards) {
    swapcontext(&outside_, &inside_);
  } else {
    swapcontext(&inside_, &outside_);
  }
#endif
#ifdef CASTOR_FIBER_ASAN
  if (inwards) {
    __sanitizer_finish_switch_fiber(fake_outside_, nullptr, nullptr);
  } else {
    __sanitizer_finish_switch_fiber(fake_inside_, &outer_bottom_, &outer_size_);
  }
#endif
}

void Fiber::Enter(void (*body)()) {
  body_ = body;
  g_entered = this;
  Switch(/*inwards=*/true);
}

void Fiber::Leave() { Switch(/*inwards=*/false); }

// The bottom frame of every fiber's stack.
void Fiber::Loop() {
  Fiber* const self = g_entered;
#ifdef CASTOR_FIBER_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &self->outer_bottom_, &self->outer_size_);
#endif
  for (;;) {
    self->body_();
    self->Leave();
  }
}

}  // namespace castor::cuda_emulator
