// One function object out of several lambdas, for std::visit.
#pragma once

namespace castor::load {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

}  // namespace castor::load
