// What a person sees while a load test runs, on standard error: on a terminal a small block that is
// redrawn in place, elsewhere a plain line every few seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "client/cli/screen.h"
#include "client/load/drive/progress.h"

namespace castor::load {

using cli::Screen;

// What the view remembers from one call to the next.
struct ViewMemory {
  std::deque<int64_t> p99;             // of all classes, by second, the newest last; at most 60
  std::vector<int64_t> in_flight;      // by class, a second ago
  void Add(const Progress& progress);  // after the drawing
};

// The block's lines, without newlines: at most `screen.rows` - 1 of them, none wider than
// `screen.columns` - 1 (a terminal may wrap at the last column).
std::vector<std::string> BlockLines(const Progress& progress, const ViewMemory& memory,
                                    const Screen& screen);

// One line for a log: `recent` is what was answered in the last `seconds`, over all classes.
std::string PlainLine(const Progress& progress, const Second& recent, double seconds);

// Draws Progress. The terminal's modes stay as they are, and colours end with their line: so there
// is nothing to restore when the program ends, however it ends, Ctrl-C and SIGKILL included. Not
// thread-safe; one at a time.
class LiveView {
 public:
  // Looks at what `descriptor` is, and at TERM, NO_COLOR and the locale in the environment.
  explicit LiveView(int descriptor);
  // Or draws a block whatever it is; `screen` then stands for the terminal. For tests.
  LiveView(int descriptor, const Screen& screen);

  void Show(const Progress& progress);

  // Removes the block, so that something else can be printed; the next Show() draws it below.
  void Hide();

 private:
  void ShowBlock(const Progress& progress);
  void ShowPlain(const Progress& progress);
  Screen Measured() const;
  std::string EraseSequence(size_t columns) const;
  void Write(const std::string& text) const;

  const int descriptor_;
  bool block_ = false;  // rather than lines
  bool fixed_ = false;  // the screen does not change
  Screen screen_;
  ViewMemory memory_;
  std::vector<size_t> drawn_;  // widths of the lines on the screen

  // For plain lines: what came since the last one.
  Second since_;
  double since_seconds_ = 0;
  double last_elapsed_ = 0;
  std::string phase_;
};

}  // namespace castor::load
