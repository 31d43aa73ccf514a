// Functions whose last bit does not depend on the machine. The C library's are as exact, but choose
// their instructions by the processor, and a plan must be the same on every worker. Errors are
// below 2 units in the last place.
#pragma once

namespace castor::load {

double Log(double x);             // natural; x is finite and above 0
double Exp(double x);             // 0 below -708, infinite above 709
double CosOfTurns(double turns);  // cos(2 pi turns), to 1e-16; |turns| below 2^40

}  // namespace castor::load
