// One function object out of several lambdas, for std::visit.
#pragma once

namespace castor::load {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;  // clang 16 does not find it by itself

}  // namespace castor::load
