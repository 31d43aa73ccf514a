#include "client/load/output/page.h"

#include "absl/strings/escaping.h"
#include "client/load/output/assets.h"
#include "client/load/output/markup.h"

namespace castor::load {
namespace {

std::string HashSource(std::string_view sha256_hex) {
  return "'sha256-" +
         absl::Base64Escape(
             absl::HexStringToBytes(absl::string_view(sha256_hex.data(), sha256_hex.size()))) +
         "'";
}

}  // namespace

std::string Page(const std::string& title, const std::string& body, const std::string& data) {
  Markup page;
  page.Add("<!DOCTYPE html>\n").Open("html", {{"lang", "en"}}).NewLine();
  page.Open("head").NewLine().Empty("meta", {{"charset", "utf-8"}}).NewLine();
  page.Empty("meta", {{"http-equiv", "Content-Security-Policy"},
                      {"content", "default-src 'none'; style-src " + HashSource(kReportCssSha256) +
                                      "; script-src " + HashSource(kReportJsSha256)}});
  page.NewLine();
  page.Empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  page.NewLine().Put("title", title).NewLine();
  page.Open("style").Add(kReportCss).Close().NewLine().Close().NewLine();
  page.Open("body").NewLine().Add(body);
  if (!data.empty()) {
    page.Open("script", {{"type", "application/json"}, {"id", "chart-data"}}).Add(data).Close();
    page.NewLine().Open("script").Add(kReportJs).Close().NewLine();
  }
  page.Close().NewLine().Close().NewLine();
  return page.whole();
}

}  // namespace castor::load
