// A strict reader of markup: what a browser forgives, it does not.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace castor::load {

// Reads markup as XML with HTML's rules for scripts, styles and the doctype, and remembers what
// tests ask for.
class MarkupCheck {
 public:
  explicit MarkupCheck(std::string_view markup);

  // Empty when the markup is well-formed: elements closed in order, attributes quoted and named
  // once, no bare "&" or "<", ids unique, and every id that is referred to is there.
  const std::string& fault() const { return fault_; }

  size_t CountOf(const std::string& element) const;
  // All text outside scripts and styles, entities resolved.
  const std::string& text() const { return text_; }
  // Values of an attribute, on whatever element.
  std::vector<std::string> Values(const std::string& attribute) const;

 private:
  void Fail(const std::string& what);
  bool Take(std::string_view expected);
  std::string_view TakeUntil(std::string_view end);
  void ReadTag();
  void ReadAttributes(const std::string& element);
  std::string Resolved(std::string_view text);

  std::string_view rest_;
  size_t size_;
  std::string fault_, text_;
  std::vector<std::string> open_;
  std::map<std::string, size_t> elements_;
  std::multimap<std::string, std::string> attributes_;
};

}  // namespace castor::load
