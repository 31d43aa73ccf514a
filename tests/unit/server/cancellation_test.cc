#include "server/services/cancellation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace castor::server {
namespace {

TEST(CancellationTest, CancelAfterAdmissionGetsTheTicket) {
  Cancellation call;
  EXPECT_TRUE(call.SetTicket(7));
  EXPECT_FALSE(call.cancelled());
  EXPECT_EQ(call.Cancel(), Ticket{7});
  EXPECT_TRUE(call.cancelled());
}

TEST(CancellationTest, CancelBeforeAdmissionLeavesTheTicketToTheSubmitter) {
  Cancellation call;
  EXPECT_EQ(call.Cancel(), std::nullopt);
  EXPECT_TRUE(call.cancelled());
  EXPECT_FALSE(call.SetTicket(7));
}

TEST(CancellationTest, OnlyTheFirstCancelGetsTheTicket) {
  Cancellation call;
  call.SetTicket(7);
  EXPECT_EQ(call.Cancel(), Ticket{7});
  EXPECT_EQ(call.Cancel(), std::nullopt);
}

TEST(CancellationTest, ExactlyOneSideCancelsHoweverTheyRace) {
  for (int i = 0; i < 2000; ++i) {
    Cancellation call;
    std::atomic<int> ready = 0;
    std::atomic<int> cancels = 0;
    auto together = [&] {
      ++ready;
      while (ready < 2) std::this_thread::yield();
    };
    std::thread canceller([&] {
      together();
      const auto ticket = call.Cancel();
      if (ticket.has_value()) {
        EXPECT_EQ(*ticket, Ticket{42});
        ++cancels;
      }
    });
    together();
    if (!call.SetTicket(42)) ++cancels;
    canceller.join();
    ASSERT_EQ(cancels, 1);
  }
}

}  // namespace
}  // namespace castor::server
