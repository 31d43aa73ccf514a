#include "client/cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace castor::cli {
namespace {

const char* SequenceOf(Ink ink) {
  switch (ink) {
    case Ink::kBold:
      return "\x1b[1m";
    case Ink::kDim:
      return "\x1b[2m";
    case Ink::kRed:
      return "\x1b[31m";
    case Ink::kYellow:
      return "\x1b[33m";
    case Ink::kGreen:
      return "\x1b[32m";
    case Ink::kPlain:
      break;
  }
  return "";
}

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string lower = value;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

Screen ScreenOf(int descriptor) {
  const char* const no_color = std::getenv("NO_COLOR");
  Screen screen;
  screen.color = no_color == nullptr || *no_color == '\0';
  screen.unicode = LocaleIsUtf8();
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
  text_ += (colored ? SequenceOf(ink) : "") + fitted + (colored ? "\x1b[0m" : "");
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

std::string Bar(double share, size_t cells, bool unicode) {
  const auto full = static_cast<size_t>(share * static_cast<double>(cells) + 0.5);
  std::string bar;
  for (size_t i = 0; i < cells; ++i) {
    bar += i < full ? (unicode ? "█" : "#") : (unicode ? "░" : ".");
  }
  return bar;
}

std::string Sparkline(const std::vector<std::optional<double>>& values, size_t cells,
                      bool unicode) {
  constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr const char* kLetters[] = {"_", ".", ".", "-", "-", "=", "=", "#"};
  const size_t first = values.size() > cells ? values.size() - cells : 0;
  double greatest = 0;
  for (size_t i = first; i < values.size(); ++i) {
    greatest = std::max(greatest, values[i].value_or(0));
  }
  std::string line;
  for (size_t i = first; i < values.size(); ++i) {
    if (!values[i]) {
      line += ' ';
      continue;
    }
    const double share = greatest > 0 ? *values[i] / greatest : 0;
    const auto level = static_cast<size_t>(7.999 * std::clamp(share, 0.0, 1.0));
    line += unicode ? kBlocks[level] : kLetters[level];
  }
  return line;
}

}  // namespace castor::cli
