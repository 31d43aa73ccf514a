#include "client/load/report/markup.h"

#include <absl/strings/str_replace.h>

#include "client/cli/report.h"

namespace castor::load {

std::string EscapeMarkup(std::string_view text) {
  return absl::StrReplaceAll(
      cli::CleanText(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

void Markup::Begin(std::string_view element, Attributes attributes) {
  text_ += '<';
  text_ += element;
  for (const auto& [name, value] : attributes) {
    if (value.empty()) continue;
    text_ += " " + std::string(name) + "=\"" + EscapeMarkup(value) + "\"";
  }
}

Markup& Markup::Open(std::string_view element, Attributes attributes) {
  Begin(element, attributes);
  text_ += '>';
  open_.emplace_back(element);
  return *this;
}

Markup& Markup::Close() {
  text_ += "</" + open_.back() + ">\n";
  open_.pop_back();
  return *this;
}

Markup& Markup::Text(std::string_view text) {
  text_ += EscapeMarkup(text);
  return *this;
}

Markup& Markup::Put(std::string_view element, std::string_view text, Attributes attributes) {
  Begin(element, attributes);
  text_ += ">" + EscapeMarkup(text) + "</" + std::string(element) + ">";
  return *this;
}

Markup& Markup::Empty(std::string_view element, Attributes attributes) {
  Begin(element, attributes);
  text_ += "/>";
  return *this;
}

Markup& Markup::Add(std::string_view markup) {
  text_ += markup;
  return *this;
}

}  // namespace castor::load
