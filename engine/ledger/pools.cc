// What the pools of threads take from the ledger: texts to tokenize, and answers to deliver.
// Tenants take turns at both, and large work never occupies all threads of several.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/attributes.h"
#include "engine/ledger/ledger.h"

namespace castor {
namespace {

// Slices of text, and answers, of so many bytes are large: some milliseconds until they are done.
constexpr int64_t kLargeText = 65'536;
constexpr int64_t kLargeAnswer = int64_t{4} << 20;

// What delivering an answer takes in addition to its bytes, in bytes.
constexpr int64_t kAnswerBytes = 16'384;

// A request makes way for those that come up to so much later, for each slice of its texts that has
// been tokenized. A slice is about a millisecond of work: of a busy thread, long texts keep a
// twentieth.
constexpr std::chrono::milliseconds kPerSlice{20};

Rank TokenizingRank(const Job& job) {
  return {job.rank.due + job.slices * kPerSlice, job.rank.sequence};
}

}  // namespace

// ---- Tokenizer threads.

// Never inlined into what is noexcept: see admission.cc.
ABSL_ATTRIBUTE_NOINLINE
void Ledger::PushToTokenize(std::unique_ptr<Job>&& job) {
  Tenant& tenant = TenantOf(*job);
  job->state = Job::State::kPreparing;
  tenants_.tokenizing.Arrive(tenant.tokenizing);
  std::unique_ptr<Job>& place = tenant.to_tokenize[TokenizingRank(*job)];
  place = std::move(job);
}

std::unique_ptr<Job> Ledger::NextToTokenize(AtHand* at_hand) noexcept {
  const Guard guard(*this);
  if (*at_hand == AtHand::kLarge) --large_texts_;
  *at_hand = AtHand::kNothing;
  while (!tokenizers_stopped_) {
    if (auto job = TakeToTokenize(at_hand)) return job;
    tokenizer_wakes_.Wait(mu_);
  }
  return nullptr;
}

std::unique_ptr<Job> Ledger::TakeToTokenize(AtHand* at_hand) {
  const bool any_size = large_texts_ < std::max(1, tokenizer_threads_ - 1);
  for (const auto& turn : tenants_.tokenizing.order()) {
    Tenant* const tenant = turn.second;
    auto& jobs = tenant->to_tokenize;
    const auto next = std::find_if(jobs.begin(), jobs.end(), [&](const auto& entry) {
      return any_size || entry.second->slice_bytes < kLargeText;
    });
    if (next == jobs.end()) continue;
    std::unique_ptr<Job> job = std::move(next->second);
    jobs.erase(next);
    ++job->slices;
    tenants_.tokenizing.Begin(tenant->tokenizing);
    tenants_.tokenizing.Charge(tenant->tokenizing, static_cast<double>(job->slice_bytes));
    if (jobs.empty()) tenants_.tokenizing.Leave(tenant->tokenizing);
    *at_hand = job->slice_bytes < kLargeText ? AtHand::kSmall : AtHand::kLarge;
    if (*at_hand == AtHand::kLarge) ++large_texts_;
    return job;
  }
  return nullptr;
}

std::unique_ptr<Job> Ledger::RemoveToTokenize(const Job& job) {
  Tenant& tenant = TenantOf(job);
  const auto at = tenant.to_tokenize.find(TokenizingRank(job));
  if (at == tenant.to_tokenize.end()) return nullptr;
  std::unique_ptr<Job> taken = std::move(at->second);
  tenant.to_tokenize.erase(at);
  if (tenant.to_tokenize.empty()) tenants_.tokenizing.Leave(tenant.tokenizing);
  return taken;
}

bool Ledger::IsOpen(const Job& job) const {
  MutexLock lock(mu_);
  return open_.contains(job.ticket);
}

// Nobody is woken: the thread that hands it back takes the next.
void Ledger::TokenizeMore(std::unique_ptr<Job> job) noexcept {
  MutexLock lock(mu_);
  if (open_.contains(job->ticket)) PushToTokenize(std::move(job));
}

void Ledger::Tokenized(std::unique_ptr<Job> job) noexcept {
  const Guard guard(*this);
  if (!open_.contains(job->ticket)) return;
  const auto* work = std::get_if<EncodeWork>(&job->work);
  if (work == nullptr || work->request.runs()) return PushReady(std::move(job));
  Close(*job);
  Tenant& tenant = TenantOf(*job);
  Post(tenant, Success(std::move(job)));
}

void Ledger::Refuse(std::unique_ptr<Job> job, const absl::Status& status) noexcept {
  const Guard guard(*this);
  if (!open_.contains(job->ticket)) return;
  Close(*job);
  Tenant& tenant = TenantOf(*job);
  Post(tenant, Refusal(std::move(job), status));
}

// ---- Answers.

ABSL_ATTRIBUTE_NOINLINE
void Ledger::DoPost(Tenant& tenant, Answer&& answer) {
  tenants_.answering.Arrive(tenant.answering);
  tenant.to_answer.push_back(std::move(answer));
  tenants_.Recount(tenant);
  if (wakes_.completions < idle_completions_) ++wakes_.completions;
}

bool Ledger::NextAnswer(bool wait, AtHand* at_hand, Answer* answer) noexcept {
  const Guard guard(*this);
  if (*at_hand == AtHand::kLarge) --large_answers_;
  if (*at_hand != AtHand::kNothing && --unanswered_ == 0) all_answered_.NotifyAll();
  *at_hand = AtHand::kNothing;
  while (!TakeAnswer(at_hand, answer)) {
    if (stopped_ && tenants_.answering.order().empty()) {
      answer_wakes_.NotifyAll();  // whoever waited for a large one to be done
      return false;
    }
    if (!wait) return false;
    ++idle_completions_;
    answer_wakes_.Wait(mu_);
    --idle_completions_;
  }
  return true;
}

bool Ledger::TakeAnswer(AtHand* at_hand, Answer* answer) {
  const bool any_size = large_answers_ < std::max(1, completion_threads_ - 1);
  for (const auto& turn : tenants_.answering.order()) {
    Tenant* const tenant = turn.second;
    auto& answers = tenant->to_answer;
    const auto next = std::find_if(answers.begin(), answers.end(), [&](const Answer& answer) {
      return any_size || answer.bytes < kLargeAnswer;
    });
    if (next == answers.end()) continue;
    *answer = std::move(*next);
    answers.erase(next);
    tenants_.Recount(*tenant);
    tenants_.answering.Begin(tenant->answering);
    tenants_.answering.Charge(tenant->answering, static_cast<double>(answer->bytes + kAnswerBytes));
    if (answers.empty()) tenants_.answering.Leave(tenant->answering);
    *at_hand = answer->bytes < kLargeAnswer ? AtHand::kSmall : AtHand::kLarge;
    if (*at_hand == AtHand::kLarge) ++large_answers_;
    return true;
  }
  return false;
}

}  // namespace castor
