#include "server/tracing/resource.h"

#include <gtest/gtest.h>

#include <string>

namespace castor::server {
namespace {

Resource Named(const std::string& name) {
  Resource resource;
  EXPECT_TRUE(AddAttributes("service.name=" + name, &resource));
  return resource;
}

// "key=value|key=value|".
std::string TextOf(const Resource& resource) {
  std::string text;
  for (const auto& attribute : resource.attributes()) {
    text += attribute.key() + "=" + attribute.value().string_value() + "|";
  }
  return text;
}

TEST(ResourceTest, AttributesAddAndReplace) {
  Resource resource = Named("castor");
  EXPECT_TRUE(AddAttributes("a=1, b = two%20words ,service.name=other,empty=", &resource));
  EXPECT_EQ(TextOf(resource), "service.name=other|a=1|b=two words|empty=|");
  EXPECT_TRUE(AddAttributes("", &resource));
  EXPECT_EQ(resource.attributes_size(), 4);
}

TEST(ResourceTest, WhatIsWrongChangesNothing) {
  for (const char* text :
       {"a", "a=1,b", "=1", "a=%", "a=%4", "a=%zz", "a=%ff", "a=\xc3\xa9", "a=%00", "a=1,b=\n"}) {
    Resource resource = Named("castor");
    EXPECT_FALSE(AddAttributes(text, &resource)) << text;
    EXPECT_EQ(TextOf(resource), "service.name=castor|") << text;
  }
  Resource resource;
  EXPECT_FALSE(AddAttributes("a=" + std::string(8192, 'x'), &resource));
}

}  // namespace
}  // namespace castor::server
