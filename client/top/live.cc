#include "client/top/live.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <string>

#include "client/cli/screen.h"
#include "client/file.h"
#include "client/top/frame.h"
#include "client/top/signals.h"
#include "client/top/terminal.h"

namespace castor::top {
namespace {

using std::chrono::milliseconds;

milliseconds Until(Clock::time_point then, Clock::time_point now) {
  // Rounded up, so that nobody spins through the last millisecond.
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(then - now));
}

std::string TimeOfDay() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  char text[16] = "";
  if (localtime_r(&now, &local) != nullptr) std::strftime(text, sizeof(text), "%H:%M:%S", &local);
  return text;
}

View ViewNow(const Fleet& fleet, const LiveOptions& options) {
  View view = fleet.ViewAt(Clock::now());
  view.clock = TimeOfDay();
  view.interval = std::chrono::duration<double>(options.interval).count();
  return view;
}

// What a person has asked for.
struct Wishes {
  Sort sort = Sort::kName;
  bool paused = false, help = false, quit = false;

  void Take(char key) {
    if (key == 'q' || key == 'Q') {
      quit = true;
    } else if (help) {
      help = false;
    } else if (key == '?' || key == 'h') {
      help = true;
    } else if (key == 'p' || key == ' ') {
      paused = !paused;
    } else if (key == 's') {
      sort = static_cast<Sort>((static_cast<size_t>(sort) + 1) % kSorts);
    }
  }
};

class LiveScreen {
 public:
  LiveScreen(Fleet* fleet, const LiveOptions& options)
      : fleet_(*fleet), options_(options), terminal_(STDIN_FILENO, STDOUT_FILENO) {}

  void Run() {
    Clock::time_point next = Clock::now(), redraw = next;
    while (!wishes_.quit && Signals::Ending() == 0) {
      const Clock::time_point now = Clock::now();
      if (now >= next && !wishes_.paused) {
        if (round_) EndRound();  // somebody is late
        fleet_.StartRound(now);
        round_ = true;
        next = std::max(next + options_.interval, now);
      }
      if (now >= redraw) {
        Draw();
        redraw = now + std::chrono::seconds(1);  // the clock goes on
      }
      const Clock::time_point wake = wishes_.paused ? redraw : std::min(next, redraw);
      fleet_.Wait(Until(wake, now), {terminal_.keyboard(), signals_.descriptor()});
      signals_.Clear();
      if (Signals::TakeStop()) terminal_.Suspend();
      for (const char key : terminal_.ReadKeys()) wishes_.Take(key);
      if (round_ && fleet_.IsRoundComplete()) EndRound();
      redraw = std::min(redraw, Clock::now());
      if (options_.count && frames_ >= *options_.count) break;
    }
    Draw();
  }

 private:
  void EndRound() {
    fleet_.EndRound(Clock::now());
    round_ = false;
    if (first_) {
      first_ = false;  // rates need two readings
    } else {
      ++frames_;
    }
  }

  void Draw() const {
    View view = ViewNow(fleet_, options_);
    view.keys = terminal_.keyboard() >= 0;
    view.sort = wishes_.sort;
    view.paused = wishes_.paused;
    view.help = wishes_.help;
    terminal_.Draw(FrameLines(view, cli::ScreenOf(STDOUT_FILENO)));
  }

  Fleet& fleet_;
  const LiveOptions& options_;
  const Signals signals_;
  Terminal terminal_;  // goes before the signals' handlers
  Wishes wishes_;
  bool round_ = false;  // one is under way
  bool first_ = true;
  int64_t frames_ = 0;
};

}  // namespace

void ShowLive(Fleet* fleet, const LiveOptions& options) {
  LiveScreen(fleet, options).Run();
  const int ending = Signals::Ending();
  if (ending != 0 && ending != SIGINT) raise(ending);
}

absl::Status PrintFrames(Fleet* fleet, const LiveOptions& options) {
  cli::Screen screen = cli::ScreenOf(STDOUT_FILENO);
  screen.rows = 0;
  screen.color = false;
  Clock::time_point next = Clock::now();
  for (int64_t frame = 0; !options.count || frame <= *options.count; ++frame) {
    for (Clock::time_point now = Clock::now(); now < next; now = Clock::now()) {
      fleet->Wait(Until(next, now));
    }
    next = std::max(next, Clock::now()) + options.interval;
    fleet->StartRound(Clock::now());
    do {
      fleet->Wait(milliseconds(100));
    } while (!fleet->IsRoundComplete());
    fleet->EndRound(Clock::now());
    // Rates need two readings. Of nobody there is nothing to see, unless somebody may come.
    if (frame == 0 && (fleet->HasEverRead() || options.count != 1)) continue;
    if (!fleet->HasEverRead() && options.count == 1) break;
    std::string text = frame == 1 ? "" : "\n";
    for (const std::string& line : FrameLines(ViewNow(*fleet, options), screen))
      text += line + "\n";
    if (absl::Status status = client::WriteStandardOutput(text); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace castor::top
