#include "tests/unit/load/markup_check.h"

#include <algorithm>
#include <sstream>

namespace castor::load {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == ':';
}

}  // namespace

MarkupCheck::MarkupCheck(std::string_view markup) : rest_(markup), size_(markup.size()) {
  Take("<!DOCTYPE html>\n");
  while (!rest_.empty() && fault_.empty()) {
    if (rest_[0] == '<') {
      ReadTag();
    } else {
      text_ += Resolved(rest_.substr(0, std::min(rest_.find('<'), rest_.size())));
      rest_.remove_prefix(std::min(rest_.find('<'), rest_.size()));
    }
  }
  if (fault_.empty() && !open_.empty()) Fail(open_.back() + " is not closed");
  std::set<std::string> ids;
  for (const std::string& id : Values("id")) {
    if (!ids.insert(id).second) Fail("id " + id + " stands twice");
  }
  for (const std::string& list : Values("aria-labelledby")) {
    std::istringstream names(list);
    for (std::string name; names >> name;) {
      if (!ids.contains(name)) Fail("there is no id " + name);
    }
  }
}

size_t MarkupCheck::CountOf(const std::string& element) const {
  const auto found = elements_.find(element);
  return found == elements_.end() ? 0 : found->second;
}

std::vector<std::string> MarkupCheck::Values(const std::string& attribute) const {
  std::vector<std::string> values;
  const auto [begin, end] = attributes_.equal_range(attribute);
  for (auto i = begin; i != end; ++i) values.push_back(i->second);
  return values;
}

void MarkupCheck::Fail(const std::string& what) {
  if (!fault_.empty()) return;
  fault_ = what + " at byte " + std::to_string(size_ - rest_.size()) + ", before \"" +
           std::string(rest_.substr(0, 60)) + "\"";
}

bool MarkupCheck::Take(std::string_view expected) {
  if (!rest_.starts_with(expected)) return false;
  rest_.remove_prefix(expected.size());
  return true;
}

std::string_view MarkupCheck::TakeUntil(std::string_view end) {
  const size_t at = rest_.find(end);
  if (at == std::string_view::npos) {
    Fail("no " + std::string(end));
    return {};
  }
  const std::string_view taken = rest_.substr(0, at);
  rest_.remove_prefix(at + end.size());
  return taken;
}

void MarkupCheck::ReadTag() {
  if (Take("</")) {
    const std::string name(TakeUntil(">"));
    if (open_.empty() || open_.back() != name) {
      Fail("</" + name + "> closes " + (open_.empty() ? "nothing" : open_.back()));
      return;
    }
    open_.pop_back();
    return;
  }
  rest_.remove_prefix(1);
  std::string name;
  while (!rest_.empty() && IsNameCharacter(rest_[0])) {
    name += rest_[0];
    rest_.remove_prefix(1);
  }
  if (name.empty()) return Fail("a < that begins no element");
  ++elements_[name];
  ReadAttributes(name);
  if (!fault_.empty() || Take("/>")) return;
  if (!Take(">")) return Fail("<" + name + " does not end");
  if (name == "script" || name == "style") {  // what is in them is no markup
    TakeUntil("</" + name + ">");
    return;
  }
  open_.push_back(name);
}

void MarkupCheck::ReadAttributes(const std::string& element) {
  std::set<std::string> seen;
  while (fault_.empty() && Take(" ")) {
    const std::string name(TakeUntil("=\""));
    if (name.empty() || !std::all_of(name.begin(), name.end(), IsNameCharacter)) {
      return Fail("a strange attribute of " + element);
    }
    if (!seen.insert(name).second) return Fail(element + " has two " + name);
    const std::string_view value = TakeUntil("\"");
    if (value.find('<') != std::string_view::npos) return Fail("a < in " + name);
    attributes_.emplace(name, Resolved(value));
  }
}

std::string MarkupCheck::Resolved(std::string_view text) {
  static const std::map<std::string_view, std::string> entities = {
      {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}};
  std::string resolved;
  while (!text.empty()) {
    if (text[0] != '&') {
      resolved += text[0];
      text.remove_prefix(1);
      continue;
    }
    const auto entity = entities.find(text.substr(0, text.find(';') + 1));
    if (entity == entities.end()) {
      Fail("a bare &");
      return resolved;
    }
    resolved += entity->second;
    text.remove_prefix(entity->first.size());
  }
  return resolved;
}

}  // namespace castor::load
