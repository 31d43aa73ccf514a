// The lines of text that `castor top` shows. Pure: the same view and screen give the same lines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/screen.h"
#include "client/top/rates.h"

namespace castor::top {

struct ServerView {
  std::string name;              // its address
  std::optional<Rates> rates{};  // nullopt: not read yet, or unreachable
  std::string error{};           // why it is unreachable
};

struct View {
  std::vector<ServerView> servers{};
  std::string clock{};  // the time of day
  double now = 0;       // seconds since the epoch
};

// At most `screen.rows` lines (0: no limit), none wider than `screen.columns` - 1.
std::vector<std::string> FrameLines(const View& view, const cli::Screen& screen);

}  // namespace castor::top
