// How long a request will keep the device, predicted before it runs (forecast/forecast.h).
#pragma once

namespace castor {

// Most predictions are within this factor of what is measured.
inline constexpr double kPredictionMargin = 1.25;

struct PredictedTime {
  double batch_us = 0;  // the batch's fixed part: paid once by all requests that share it
  double own_us = 0;    // of the request itself

  // The learned factor that both contain. Without it they are what the prices alone say.
  double correction = 1;

  double alone_us() const { return batch_us + own_us; }
};

}  // namespace castor
