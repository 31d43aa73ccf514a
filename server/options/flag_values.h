// Reads the values of flags that are more than a number or one of a few words. A function that
// returns a text says what is wrong, "" for nothing.
#pragma once

#include <string>
#include <utility>

#include "server/options/options.h"

namespace castor::server {

// HOST:PORT; an IPv6 host stands in brackets.
std::string CheckAddress(const std::string& text);

// Whether only this machine reaches the address.
bool IsLocal(const std::string& address);

// auto, cpu, cuda, cuda:N.
std::string CheckDevice(const std::string& text);

// A collector: HOST:PORT, in plaintext, also as http://HOST:PORT; over TLS as https://HOST:PORT.
std::string ReadCollector(const std::string& text, TraceOptions* trace);

// "oip,tei"; "" and "none" are none.
std::string ReadProtocols(const std::string& text, Protocols* protocols);

// [NAME=]PATH. Names become labels, health services and CAST layers (NAME/INDEX): a small alphabet.
// Throws CLI::ValidationError.
ModelSource ParseModel(const std::string& text);

// "NAME=X". The same.
std::pair<std::string, double> ParseWeight(const std::string& text);

// "MODEL/TASK=DIR", for one of `models`, whose names may hold '/'.
void AddAdapter(const std::string& text, std::vector<ModelSource>* models);

}  // namespace castor::server
