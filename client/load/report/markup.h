// Writes HTML and SVG that is well-formed by construction: elements are closed in the order they
// were opened, and all text and attribute values are escaped, whatever they contain.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace castor::load {

// CleanText, with the five characters that mean something to a browser escaped: fit for text and
// for attribute values in double quotes.
std::string EscapeMarkup(std::string_view text);

// For one thread. Names of elements and attributes are the program's own, never data.
class Markup {
 public:
  // Those with an empty value are left out.
  using Attributes = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  Markup& Open(std::string_view element, Attributes attributes = {});
  Markup& Close();  // the element opened last, and the line. REQUIRES: there is one
  Markup& Text(std::string_view text);
  // An element that holds text alone.
  Markup& Put(std::string_view element, std::string_view text, Attributes attributes = {});
  Markup& Empty(std::string_view element, Attributes attributes = {});  // <meta/>, <path/>

  // What is markup already: another's whole(), or a file that was built in.
  Markup& Add(std::string_view markup);

  // REQUIRES: all is closed.
  const std::string& whole() const { return text_; }

 private:
  void Begin(std::string_view element, Attributes attributes);

  std::string text_;
  std::vector<std::string> open_;
};

}  // namespace castor::load
