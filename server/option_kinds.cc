#include "server/option_kinds.h"

#include <cctype>
#include <cstdlib>

namespace castor::server {

std::string EnvironmentName(std::string_view flag) {
  std::string name = "CASTOR_";
  for (char c : flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

bool IsSet(const std::string& environment_name) {
  const char* value = std::getenv(environment_name.c_str());
  return value != nullptr && *value != '\0';
}

std::vector<CLI::ConfigItem> FileBelowEnvironment::from_config(std::istream& input) const {
  std::vector<CLI::ConfigItem> items = CLI::ConfigTOML::from_config(input);
  for (const CLI::ConfigItem& item : items) {
    if (!item.parents.empty()) {
      throw CLI::ConfigError("unknown section [" + item.parents.front() +
                             "] in the configuration file: keys stand alone");
    }
    const CLI::Option* option = app_->get_option_no_throw("--" + item.name);
    if (option == nullptr || !option->get_configurable()) {
      throw CLI::ConfigError("unknown key '" + item.fullname() + "' in the configuration file");
    }
  }
  std::erase_if(
      items, [](const CLI::ConfigItem& item) { return IsSet(EnvironmentName("--" + item.name)); });
  return items;
}

}  // namespace castor::server
