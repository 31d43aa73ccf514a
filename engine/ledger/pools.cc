// The work that the thread pools take from the ledger: texts to tokenize and answers to deliver.
// Tenants take turns at both, and large items never occupy every thread of a pool.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/attributes.h"
#include "engine/ledger/ledger.h"

namespace castor {
namespace {

// Slices of text and answers from these sizes on are large: they take some milliseconds.
constexpr int64_t kLargeText = 65'536;
constexpr int64_t kLargeAnswer = int64_t{4} << 20;

// The fixed cost of delivering an answer, in bytes.
constexpr int64_t kAnswerBytes = 16'384;

// How much later a request's rank becomes with each slice of its texts that has been tokenized. A
// slice is about a millisecond of work, so long texts keep a twentieth of a busy thread.
constexpr std::chrono::milliseconds kPerSlice{20};

Rank TokenizingRank(const Job& job) {
  return {job.rank.due + job.slices * kPerSlice, job.rank.sequence};
}

}  // namespace

// ---- Tokenizer threads.

// Never inlined into a noexcept function: see admission.cc.
ABSL_ATTRIBUTE_NOINLINE
void Ledger::PushToTokenize(std::unique_ptr<Job>&& job) {
  Tenant& tenant = TenantOf(*job);
  job->state = Job::State::kPreparing;
  tenants_.tokenizing.Arrive(tenant.tokenizing);
  std::unique_ptr<Job>& place = tenant.to_tokenize[TokenizingRank(*job)];
  place = std::move(job);
}

std::unique_ptr<Job> Ledger::NextToTokenize(WorkSize* size) noexcept {
  const Guard guard(*this);
  if (*size == WorkSize::kLarge) --large_texts_;
  *size = WorkSize::kNothing;
  while (!tokenizers_stopped_) {
    if (auto job = TakeToTokenize(size)) return job;
    tokenizer_wakes_.Wait(mu_);
  }
  return nullptr;
}

std::unique_ptr<Job> Ledger::TakeToTokenize(WorkSize* size) {
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
    *size = job->slice_bytes < kLargeText ? WorkSize::kSmall : WorkSize::kLarge;
    if (*size == WorkSize::kLarge) ++large_texts_;
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

// Wakes no thread: the one that gives the job back takes the next.
void Ledger::TokenizeMore(std::unique_ptr<Job> job) noexcept {
  MutexLock lock(mu_);
  if (open_.contains(job->ticket)) PushToTokenize(std::move(job));
}

void Ledger::Tokenized(std::unique_ptr<Job> job) noexcept {
  const Guard guard(*this);
  if (open_.contains(job->ticket)) EndPreparing(std::move(job));
}

void Ledger::Refuse(std::unique_ptr<Job> job, const absl::Status& status) noexcept {
  const Guard guard(*this);
  if (!open_.contains(job->ticket)) return;
  Close(*job);
  Tenant& tenant = TenantOf(*job);
  Post(tenant, Refusal(std::move(job), status));
}

// ---- Answers.

void Ledger::Delivered() noexcept {
  MutexLock lock(mu_);
  if (--unanswered_ == 0) all_answered_.NotifyAll();
}

ABSL_ATTRIBUTE_NOINLINE
void Ledger::DoPost(Tenant& tenant, Answer&& answer) {
  tenants_.answering.Arrive(tenant.answering);
  tenant.to_answer.push_back(std::move(answer));
  tenants_.UpdateDemand(tenant);
  if (wakes_.completions < idle_completions_) ++wakes_.completions;
}

bool Ledger::NextAnswer(bool wait, WorkSize* size, Answer* answer) noexcept {
  const Guard guard(*this);
  if (*size == WorkSize::kLarge) --large_answers_;
  if (*size != WorkSize::kNothing && --unanswered_ == 0) all_answered_.NotifyAll();
  *size = WorkSize::kNothing;
  while (!TakeAnswer(size, answer)) {
    if (stopped_ && tenants_.answering.order().empty()) {
      answer_wakes_.NotifyAll();  // threads that waited for a large answer to be delivered
      return false;
    }
    if (!wait) return false;
    ++idle_completions_;
    answer_wakes_.Wait(mu_);
    --idle_completions_;
  }
  return true;
}

bool Ledger::TakeAnswer(WorkSize* size, Answer* answer) {
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
    tenants_.UpdateDemand(*tenant);
    tenants_.answering.Begin(tenant->answering);
    tenants_.answering.Charge(tenant->answering, static_cast<double>(answer->bytes + kAnswerBytes));
    if (answers.empty()) tenants_.answering.Leave(tenant->answering);
    *size = answer->bytes < kLargeAnswer ? WorkSize::kSmall : WorkSize::kLarge;
    if (*size == WorkSize::kLarge) ++large_answers_;
    return true;
  }
  return false;
}

}  // namespace castor
