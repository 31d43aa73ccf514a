// Lines for a terminal: coloured text that never leaves its line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "client/cli/report.h"

namespace castor::cli {

struct Screen {
  size_t columns = 80, rows = 24;
  bool color = true;
};

// Colours unless NO_COLOR is set; the size of the terminal at `descriptor`, or a default size.
Screen ScreenOf(int descriptor);

// Whether the descriptor is a terminal that understands control sequences.
bool IsScreen(int descriptor);

enum class Ink { kPlain, kBold, kDim, kYellow, kGreen };

// A line of at most `screen.columns` - 1 cells: a terminal may wrap at the last column. Colours end
// with their text.
class ScreenLine {
 public:
  explicit ScreenLine(const Screen& screen)
      : room_(screen.columns > 0 ? screen.columns - 1 : 0), color_(screen.color) {}

  // `text` may be foreign: see FitText.
  ScreenLine& Add(std::string_view text, Ink ink = Ink::kPlain);

  // Adds text in a column of `width` cells, at its right end if `right`.
  ScreenLine& Column(const std::string& text, size_t width, bool right, Ink ink = Ink::kPlain);

  size_t room() const { return room_; }  // cells that are left

  std::string TakeText() { return std::move(text_); }

 private:
  size_t room_;
  bool color_;
  std::string text_;
};

// A line on standard error that each Show replaces. Does nothing where that is not a terminal.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { Clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool on() const { return on_; }
  void Show(const std::string& line);  // REQUIRES: clean text
  void Clear();

 private:
  const bool on_;
  bool visible_ = false;
};

}  // namespace castor::cli
