// A fixture for tests of TLS: two authorities, and a folder with files.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"
#include "tests/support/test_authority.h"

namespace castor::testing {

class TlsTest : public ::testing::Test {
 protected:
  // Writes a file as programs do that rotate certificates: no reader sees a part of it. Returns its
  // path.
  std::string File(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / "new", std::ios::binary) << text;
    EXPECT_EQ(std::rename((folder_ / "new").c_str(), (folder_ / name).c_str()), 0);
    return folder_ / name;
  }

  const TemporaryFolder folder_;
  const TestAuthority authority_, other_{"another"};
  const std::string ca_ = File("ca", authority_.certificate());
};

}  // namespace castor::testing
