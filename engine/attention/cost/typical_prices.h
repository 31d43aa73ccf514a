// What the terms of a cost model cost on one CPU: in what proportion prices are likely to stand
// where the runs of a calibration, a few hundred, do not tell terms apart, and where there was
// none.
//
// Constants; any thread.
#pragma once

#include "engine/attention/cost/cost_terms.h"
#include "engine/kernel_table.h"

namespace castor::attention {

// In float32, fitted to some thousand random problems of each kernel, on an AMD EPYC with AVX-512
// (tests/bench/logs/2026-11-23-prediction.md).
constexpr CostTerms TypicalPrices(KernelName kernel) {
  CostTerms prices{};
  const auto set = [&](CostTerm term, double us) { prices[static_cast<size_t>(term)] = us; };
  set(CostTerm::kLaunch, 18);
  set(CostTerm::kWakes, 5);
  set(CostTerm::kTasks, 0.25);
  set(CostTerm::kMemory, 25);
  set(CostTerm::kRows, 1800);
  set(CostTerm::kTails, 850);
  set(CostTerm::kTokens, 60);
  set(CostTerm::kStores, 120);
  set(CostTerm::kGather, 150);
  set(CostTerm::kScores, 8);
  set(CostTerm::kBlocks, 170);
  set(CostTerm::kWeights, 80);
  set(CostTerm::kPlanes, 32500);
  set(CostTerm::kHash, 13);
  set(CostTerm::kLloyd, 50);
  set(CostTerm::kCodes, 300);
  set(CostTerm::kClusters, 30000);
  switch (kernel) {
    case KernelName::kVanilla:
      set(CostTerm::kLaunch, 7);
      set(CostTerm::kTasks, 0.05);
      break;
    case KernelName::kImprovedClustered:
      set(CostTerm::kLaunch, 24);
      set(CostTerm::kBlocks, 380);
      set(CostTerm::kClusters, 200000);
      set(CostTerm::kExact, 6.5);
      set(CostTerm::kRefined, 690);
      set(CostTerm::kSelect, 400);
      break;
    case KernelName::kCast:
      set(CostTerm::kLaunch, 28);
      set(CostTerm::kCodes, 6000);
      set(CostTerm::kSelect, 4200);
      set(CostTerm::kAssign, 3500);
      set(CostTerm::kLaplace, 330);
      break;
    default:
      break;
  }
  return prices;
}

}  // namespace castor::attention
