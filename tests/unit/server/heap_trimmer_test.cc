#include "server/lifecycle/heap_trimmer.h"

#include <gtest/gtest.h>

namespace castor::server {
namespace {

TEST(IdlenessTest, IsToldOnceByProcessorTimeAlone) {
  Idleness idleness;
  double cpu = 7;  // the start's
  const auto looks_until_told = [&](double each) {
    for (int look = 1; look <= 10 * Idleness::kLooks; ++look) {
      if (idleness.Update(cpu += each)) return look;
    }
    return 0;
  };
  EXPECT_EQ(looks_until_told(0.5), 0) << "a quarter of a core";
  EXPECT_EQ(looks_until_told(0.01), Idleness::kLooks) << "scrapes and health checks";
  EXPECT_EQ(looks_until_told(0.01), 0) << "all is given back already";
  for (int look = 0; look < 10; ++look) {  // never long enough
    EXPECT_FALSE(idleness.Update(cpu += 0.5));
    for (int idle = 0; idle + 1 < Idleness::kLooks; ++idle) EXPECT_FALSE(idleness.Update(cpu));
  }
  EXPECT_TRUE(idleness.Update(cpu));
}

}  // namespace
}  // namespace castor::server
