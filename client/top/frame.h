// What `castor top` shows, as lines of text. Pure: the same view and screen give the same lines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/screen.h"
#include "client/top/rates.h"

namespace castor::top {

struct ServerView {
  std::string name;              // its address
  std::optional<Rates> rates{};  // nullopt: it cannot be read now, or not yet
  std::string error{};           // why
};

struct View {
  std::vector<ServerView> servers{};
  std::string clock{};  // the time of day
  double now = 0;       // the same in seconds since the epoch
};

// At most `screen.rows` lines (0: as many as it takes), none wider than `screen.columns` - 1.
std::vector<std::string> FrameLines(const View& view, const cli::Screen& screen);

}  // namespace castor::top
