#include "client/cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace castor::cli {
namespace {

// In the order of Ink.
constexpr const char* kSequences[] = {"", "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[32m"};

}  // namespace

Screen ScreenOf(int descriptor) {
  const char* const no_color = std::getenv("NO_COLOR");
  Screen screen;
  screen.color = no_color == nullptr || *no_color == '\0';
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    screen.columns = size.ws_col;
    screen.rows = size.ws_row;
  }
  return screen;
}

bool IsScreen(int descriptor) {
  const char* const term = std::getenv("TERM");
  const bool dumb = term == nullptr || *term == '\0' || std::string_view(term) == "dumb";
  return isatty(descriptor) == 1 && !dumb;
}

ScreenLine& ScreenLine::Add(std::string_view text, Ink ink) {
  const std::string fitted = FitText(text, room_);
  room_ -= std::min(room_, CellsOf(fitted));
  const bool colored = color_ && ink != Ink::kPlain && !fitted.empty();
  text_ +=
      (colored ? kSequences[static_cast<size_t>(ink)] : "") + fitted + (colored ? "\x1b[0m" : "");
  return *this;
}

ScreenLine& ScreenLine::Column(const std::string& text, size_t width, bool right, Ink ink) {
  const std::string fitted = FitText(text, width);
  const std::string pad(width - CellsOf(fitted), ' ');
  if (right) Add(pad);
  Add(fitted, ink);
  if (!right) Add(pad);
  return *this;
}

StatusLine::StatusLine() : on_(IsScreen(STDERR_FILENO)) {}

void StatusLine::Show(const std::string& line) {
  if (!on_) return;
  std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
  std::fflush(stderr);
  visible_ = true;
}

void StatusLine::Clear() {
  if (std::exchange(visible_, false)) std::fputs("\r\x1b[K", stderr);
}

}  // namespace castor::cli
