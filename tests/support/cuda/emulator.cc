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

enum class State { kReady, kBlock, kCluster, kWarp, kDone };

struct Block;

struct PendingCopy {
  void* to;
  const void* from;
  size_t bytes;
};

// A thread of the grid.
struct Thread {
  Fiber fiber;
  Block* block = nullptr;
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

struct Block {
  uint3 index{};
  std::vector<Thread*> threads;
  std::unique_ptr<unsigned char, FreeDeleter> shared;
  int alive = 0;
  int waiting = 0;
  int votes = 0;
  Votes result;
};

// The running grid; there is one at a time.
struct Machine {
  uint64_t random = 0;                           // 0: natural order
  std::vector<std::unique_ptr<Thread>> threads;  // kept from launch to launch, with their stacks
  std::vector<Block> blocks;                     // of the running cluster
  int alive = 0;
  int waiting_in_cluster = 0;
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
    case State::kCluster:
      return "at a cluster's barrier";
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

void Release(State state, const std::vector<Thread*>& threads) {
  for (Thread* thread : threads) {
    if (thread->state == state) thread->state = State::kReady;
  }
}

// Releases the barrier once every thread that is still alive has reached it.
void CheckBlock(Block& block) {
  if (block.waiting == 0 || block.waiting < block.alive) return;
  block.result = {block.votes, block.waiting};
  block.waiting = 0;
  block.votes = 0;
  Release(State::kBlock, block.threads);
}

void CheckCluster() {
  Machine& machine = TheMachine();
  if (machine.waiting_in_cluster == 0 || machine.waiting_in_cluster < machine.alive) return;
  machine.waiting_in_cluster = 0;
  for (Block& block : machine.blocks) Release(State::kCluster, block.threads);
}

void RunThread() {
  Machine& machine = TheMachine();
  machine.body(machine.context);
  WaitCopies(0);
  Thread& thread = *machine.current;
  thread.state = State::kDone;
  --machine.alive;
  --thread.block->alive;
  CheckBlock(*thread.block);
  CheckCluster();
}

// Sets up the cluster whose first block is `base`.
void Load(const Shape& shape, const uint3& base) {
  Machine& machine = TheMachine();
  const size_t block_threads = size_t{shape.block.x} * shape.block.y * shape.block.z;
  const size_t blocks = size_t{shape.cluster.x} * shape.cluster.y * shape.cluster.z;
  machine.blocks.resize(blocks);
  while (machine.threads.size() < blocks * block_threads) {
    machine.threads.push_back(std::make_unique<Thread>());
  }
  size_t next = 0;
  for (size_t b = 0; b < blocks; ++b) {
    Block& block = machine.blocks[b];
    const auto rank = static_cast<unsigned>(b);
    block.index = {base.x + rank % shape.cluster.x,
                   base.y + rank / shape.cluster.x % shape.cluster.y,
                   base.z + rank / (shape.cluster.x * shape.cluster.y)};
    block.threads.clear();
    block.alive = static_cast<int>(block_threads);
    block.waiting = block.votes = 0;
    block.shared.reset();
    if (shape.shared_bytes > 0) {
      const size_t rounded = (shape.shared_bytes + 15) / 16 * 16;
      void* memory = nullptr;
      if (posix_memalign(&memory, 128, rounded) != 0) Fail("no memory");
      block.shared.reset(static_cast<unsigned char*>(memory));
      std::memset(memory, 0xff, rounded);  // NaN in every type
    }
    for (size_t t = 0; t < block_threads; ++t, ++next) {
      Thread& thread = *machine.threads[next];
      const auto linear = static_cast<unsigned>(t);
      thread.block = &block;
      thread.index = {linear % shape.block.x, linear / shape.block.x % shape.block.y,
                      linear / (shape.block.x * shape.block.y)};
      thread.lane = linear % 32;
      thread.state = State::kReady;
      thread.complete = nullptr;
      thread.copies.clear();
      thread.group_ends.clear();
      block.threads.push_back(&thread);
    }
  }
  machine.alive = static_cast<int>(next);
  machine.waiting_in_cluster = 0;
}

void RunCluster() {
  Machine& machine = TheMachine();
  const auto count = static_cast<size_t>(machine.alive);
  while (machine.alive > 0) {
    bool any = false;
    Order order(count);
    for (size_t i = 0; i < count; ++i) {
      Thread& thread = *machine.threads[order.Next()];
      if (thread.state != State::kReady) continue;
      any = true;
      machine.current = &thread;
      threadIdx = thread.index;
      blockIdx = thread.block->index;
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
  int shown = 0;
  for (const Block& block : machine.blocks) {
    for (const Thread* thread : block.threads) {
      if (thread->state == State::kDone || shown == 16) continue;
      ++shown;
      std::fprintf(stderr, "  block (%u, %u, %u), thread (%u, %u, %u): %s\n", block.index.x,
                   block.index.y, block.index.z, thread->index.x, thread->index.y, thread->index.z,
                   NameOf(thread->state));
    }
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
  const dim3 clusters(shape.grid.x / shape.cluster.x, shape.grid.y / shape.cluster.y,
                      shape.grid.z / shape.cluster.z);
  const size_t count = size_t{clusters.x} * clusters.y * clusters.z;
  Order order(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t c = order.Next();
    Load(shape, {static_cast<unsigned>(c % clusters.x) * shape.cluster.x,
                 static_cast<unsigned>(c / clusters.x % clusters.y) * shape.cluster.y,
                 static_cast<unsigned>(c / clusters.x / clusters.y) * shape.cluster.z});
    RunCluster();
  }
}

Votes SyncBlock(bool predicate) {
  Block& block = *TheMachine().current->block;
  ++block.waiting;
  block.votes += predicate ? 1 : 0;
  TheMachine().current->state = State::kBlock;
  CheckBlock(block);
  // Even the last thread to arrive yields, so that the order of threads is drawn anew.
  TheMachine().current->fiber.Leave();
  return block.result;
}

void SyncCluster() {
  Machine& machine = TheMachine();
  ++machine.waiting_in_cluster;
  machine.current->state = State::kCluster;
  CheckCluster();
  machine.current->fiber.Leave();
}

void WarpOperation(uint32_t mask, Complete complete, void* lane) {
  Thread& me = *TheMachine().current;
  Block& block = *me.block;
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
    if (base + i >= block.threads.size()) Fail("a warp's operation names a lane that is not there");
    const Thread& other = *block.threads[base + i];
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
    Thread& other = *block.threads[base + i];
    other.complete = nullptr;
    other.state = State::kReady;
  }
}

unsigned LaneIndex() { return TheMachine().current->lane; }

unsigned char* DynamicShared() { return TheMachine().current->block->shared.get(); }

unsigned ClusterRank() {
  Machine& machine = TheMachine();
  return static_cast<unsigned>(machine.current->block - machine.blocks.data());
}

unsigned ClusterSize() { return static_cast<unsigned>(TheMachine().blocks.size()); }

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
