#include "tests/support/cuda/emulator.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "cuda_runtime.h"
#include "tests/support/cuda/fiber.h"

namespace castor::cuda_emulator {
namespace {

enum class State { kReady, kBlock, kWarp, kDone };

struct PendingCopy {
  void* to;
  const void* from;
  size_t bytes;
};

// A thread of the grid.
struct Thread {
  Fiber fiber;
  uint3 index{};
  unsigned lane = 0;
  State state = State::kDone;
  // During a warp operation:
  uint32_t mask = 0;
  Complete complete = nullptr;
  void* argument = nullptr;
  std::vector<PendingCopy> copies;
  std::vector<size_t> group_ends;  // of committed groups, as positions in `copies`
};

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};

// The running block.
struct Block {
  uint3 index{};
  std::unique_ptr<unsigned char, FreeDeleter> shared;
  size_t threads = 0;
  int alive = 0;
  int waiting = 0;
};

// The running grid; there is one at a time.
struct Machine {
  uint64_t random = 0;                           // 0: natural order
  std::vector<std::unique_ptr<Thread>> threads;  // kept from launch to launch, with their stacks
  Block block;
  Thread* current = nullptr;
  void (*body)(void*) = nullptr;
  void* context = nullptr;
};

Machine& TheMachine() {
  static Machine machine;
  return machine;
}

uint64_t NextRandom(uint64_t* state) {  // splitmix64
  uint64_t z = (*state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// The numbers 0..count-1 in an order picked by two random numbers.
class Order {
 public:
  explicit Order(size_t count) : count_(count) {
    uint64_t& random = TheMachine().random;
    if (random == 0 || count < 2) return;
    at_ = NextRandom(&random) % count;
    do {
      stride_ = 1 + NextRandom(&random) % (count - 1);
    } while (std::gcd(stride_, count) != 1);
  }
  size_t Next() {
    const size_t now = at_;
    at_ = (at_ + stride_) % count_;
    return now;
  }

 private:
  size_t count_;
  size_t at_ = 0;
  size_t stride_ = 1;
};

const char* NameOf(State state) {
  switch (state) {
    case State::kReady:
      return "ready";
    case State::kBlock:
      return "at a block's barrier";
    case State::kWarp:
      return "in a warp's operation";
    case State::kDone:
      return "done";
  }
  return "";
}

void Wait(State state) {
  Thread& thread = *TheMachine().current;
  thread.state = state;
  thread.fiber.Leave();
}

// Releases the barrier once every thread that is still alive has reached it.
void CheckBarrier() {
  Machine& machine = TheMachine();
  Block& block = machine.block;
  if (block.waiting == 0 || block.waiting < block.alive) return;
  block.waiting = 0;
  for (size_t t = 0; t < block.threads; ++t) {
    State& state = machine.threads[t]->state;
    if (state == State::kBlock) state = State::kReady;
  }
}

void RunThread() {
  Machine& machine = TheMachine();
  machine.body(machine.context);
  WaitCopies(0);
  machine.current->state = State::kDone;
  --machine.block.alive;
  CheckBarrier();
}

// Sets up the block of this index.
void Load(const Shape& shape, const uint3& index) {
  Machine& machine = TheMachine();
  Block& block = machine.block;
  block.index = index;
  block.threads = size_t{shape.block.x} * shape.block.y * shape.block.z;
  block.alive = static_cast<int>(block.threads);
  block.waiting = 0;
  block.shared.reset();
  if (shape.shared_bytes > 0) {
    const size_t rounded = (shape.shared_bytes + 15) / 16 * 16;
    void* memory = nullptr;
    if (posix_memalign(&memory, 128, rounded) != 0) Fail("no memory");
    block.shared.reset(static_cast<unsigned char*>(memory));
    std::memset(memory, 0xff, rounded);  // NaN in every type
  }
  while (machine.threads.size() < block.threads) {
    machine.threads.push_back(std::make_unique<Thread>());
  }
  for (size_t t = 0; t < block.threads; ++t) {
    Thread& thread = *machine.threads[t];
    const auto linear = static_cast<unsigned>(t);
    thread.index = {linear % shape.block.x, linear / shape.block.x % shape.block.y,
                    linear / (shape.block.x * shape.block.y)};
    thread.lane = linear % 32;
    thread.state = State::kReady;
    thread.complete = nullptr;
    thread.copies.clear();
    thread.group_ends.clear();
  }
}

void RunBlock() {
  Machine& machine = TheMachine();
  blockIdx = machine.block.index;
  while (machine.block.alive > 0) {
    bool any = false;
    Order order(machine.block.threads);
    for (size_t i = 0; i < machine.block.threads; ++i) {
      Thread& thread = *machine.threads[order.Next()];
      if (thread.state != State::kReady) continue;
      any = true;
      machine.current = &thread;
      threadIdx = thread.index;
      thread.fiber.Enter(RunThread);
    }
    if (!any) Fail("its threads wait for each other forever");
  }
  machine.current = nullptr;
}

}  // namespace

void Fail(const char* what) {
  const Machine& machine = TheMachine();
  std::fprintf(stderr, "emulated kernel: %s\n", what);
  const uint3& index = machine.block.index;
  int shown = 0;
  for (size_t t = 0; t < machine.block.threads; ++t) {
    const Thread& thread = *machine.threads[t];
    if (thread.state == State::kDone || shown == 16) continue;
    ++shown;
    std::fprintf(stderr, "  block (%u, %u, %u), thread (%u, %u, %u): %s\n", index.x, index.y,
                 index.z, thread.index.x, thread.index.y, thread.index.z, NameOf(thread.state));
  }
  std::abort();
}

void SetSchedule(uint64_t seed) { TheMachine().random = seed; }

void RunGrid(const Shape& shape, void (*body)(void*), void* context) {
  Machine& machine = TheMachine();
  if (machine.current != nullptr) Fail("a kernel launches another");
  machine.body = body;
  machine.context = context;
  blockDim = shape.block;
  gridDim = shape.grid;
  const dim3& grid = shape.grid;
  const size_t count = size_t{grid.x} * grid.y * grid.z;
  Order order(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t b = order.Next();
    Load(shape, {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                 static_cast<unsigned>(b / grid.x / grid.y)});
    RunBlock();
  }
}

void SyncBlock() {
  Machine& machine = TheMachine();
  ++machine.block.waiting;
  machine.current->state = State::kBlock;
  CheckBarrier();
  // Even the last thread to arrive yields, so that the order of threads is drawn anew.
  machine.current->fiber.Leave();
}

void WarpOperation(uint32_t mask, Complete complete, void* lane) {
  Machine& machine = TheMachine();
  Thread& me = *machine.current;
  if ((mask >> me.lane & 1) == 0) Fail("a thread takes part in a warp's operation without its bit");
  me.mask = mask;
  me.complete = complete;
  me.argument = lane;
  const size_t linear = me.index.x + blockDim.x * (me.index.y + size_t{blockDim.y} * me.index.z);
  const size_t base = linear - me.lane;
  void* lanes[32] = {};
  bool all = true;
  for (unsigned i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0) continue;
    if (base + i >= machine.block.threads)
      Fail("a warp's operation names a lane that is not there");
    const Thread& other = *machine.threads[base + i];
    if (other.state == State::kDone) Fail("a warp's operation names a lane that has left");
    if (other.complete == nullptr) {
      all = false;
    } else if (other.complete != complete || other.mask != mask) {
      Fail("the lanes of a warp are in different operations");
    }
    lanes[i] = other.argument;
  }
  if (!all) {
    Wait(State::kWarp);
    return;
  }
  complete(mask, lanes);
  for (unsigned i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0) continue;
    Thread& other = *machine.threads[base + i];
    other.complete = nullptr;
    other.state = State::kReady;
  }
}

unsigned LaneIndex() { return TheMachine().current->lane; }

unsigned char* DynamicShared() { return TheMachine().block.shared.get(); }

void QueueCopy(void* to, const void* from, size_t bytes) {
  TheMachine().current->copies.push_back({to, from, bytes});
}

void CommitCopies() {
  Thread& thread = *TheMachine().current;
  thread.group_ends.push_back(thread.copies.size());
}

void WaitCopies(size_t groups_left) {
  Thread& thread = *TheMachine().current;
  if (thread.group_ends.size() <= groups_left) return;
  const size_t groups = thread.group_ends.size() - groups_left;
  const size_t end = thread.group_ends[groups - 1];
  for (size_t i = 0; i < end; ++i) {
    const PendingCopy& copy = thread.copies[i];
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<ptrdiff_t>(end));
  thread.group_ends.erase(thread.group_ends.begin(),
                          thread.group_ends.begin() + static_cast<ptrdiff_t>(groups));
  for (size_t& group_end : thread.group_ends) group_end -= end;
}

}  // namespace castor::cuda_emulator
