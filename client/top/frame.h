// What `castor top` shows, as lines of text. Pure: the same view and screen give the same lines.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/screen.h"
#include "client/top/rates.h"

namespace castor::top {

struct ServerView {
  std::string name;                             // its address
  std::optional<Rates> rates{};                 // nullopt: it cannot be read now, or not yet
  std::optional<double> unreachable_seconds{};  // for so long it could not be read
  std::string error{};                          // why
  std::optional<double> restarted_seconds{};    // so long ago
};

// What tables are sorted by; by name where that is equal.
enum class Sort { kName, kRequests, kP99, kErrors };
inline constexpr size_t kSorts = 4;

// One round of readings, over all servers; nullopt: there was nothing to see.
struct Moment {
  double when = 0;  // seconds, of any clock
  std::optional<double> requests{}, p99{};
};

struct View {
  std::vector<ServerView> servers{};
  std::vector<Moment> moments{};  // of the last minute, the newest last
  std::string clock{};            // the time of day; empty: not shown
  double interval = 1;            // seconds
  Sort sort = Sort::kName;
  bool keys = false;  // there is a keyboard: the last line says what its keys do
  bool paused = false, help = false;
};

// At most `screen.rows` lines (0: as many as it takes), none wider than `screen.columns` - 1.
std::vector<std::string> FrameLines(const View& view, const cli::Screen& screen);

// The servers' rates together; nullopt if none can be read.
std::optional<Rates> TotalOf(const std::vector<ServerView>& servers);

}  // namespace castor::top
