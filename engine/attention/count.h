// kernels::Count, for the layers above the kernels.
#pragma once

#include "engine/kernels/count.h"

namespace castor::attention {

using kernels::Count;

}  // namespace castor::attention
