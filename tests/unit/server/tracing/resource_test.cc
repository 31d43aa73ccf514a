#include "server/tracing/resource.h"

#include <gtest/gtest.h>

#include <string>

namespace castor::server {
namespace {

TEST(ResourceTest, AttributesAddAndReplace) {
  Resource resource = {{"service.name", "castor"}};
  EXPECT_TRUE(AddAttributes("a=1, b = two%20words ,service.name=other,empty=", &resource));
  EXPECT_EQ(resource,
            (Resource{{"service.name", "other"}, {"a", "1"}, {"b", "two words"}, {"empty", ""}}));
  EXPECT_TRUE(AddAttributes("", &resource));
  EXPECT_EQ(resource.size(), 4U);
}

TEST(ResourceTest, WhatIsWrongChangesNothing) {
  for (const char* text :
       {"a", "a=1,b", "=1", "a=%", "a=%4", "a=%zz", "a=%ff", "a=\xc3\xa9", "a=%00", "a=1,b=\n"}) {
    Resource resource = {{"k", "v"}};
    EXPECT_FALSE(AddAttributes(text, &resource)) << text;
    EXPECT_EQ(resource.size(), 1U) << text;
  }
  Resource resource;
  EXPECT_FALSE(AddAttributes("a=" + std::string(8192, 'x'), &resource));
}

}  // namespace
}  // namespace castor::server
