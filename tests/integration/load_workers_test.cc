// Workers and their coordinator over real sockets, with a job that sends nothing.
#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "castor/worker/v1/worker.grpc.pb.h"
#include "client/load/workers/coordinator.h"
#include "client/load/workers/local_workers.h"
#include "client/load/workers/token.h"
#include "client/load/workers/wire.h"
#include "client/load/workers/worker_server.h"
#include "tests/integration/load_fake_job.h"

extern char** environ;

namespace castor::load {
namespace {

using testing::kFakeVersion;
using testing::PrepareFake;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
constexpr int kPatienceMs = 60'000;
constexpr int64_t kRequests = 100'001;
const std::atomic<bool> kNever = false;

WorkerOptions Options(const std::string& token = "") {
  return {.listen = "127.0.0.1:0", .token = token, .version = kFakeVersion};
}

CoordinatorOptions Patient() {
  CoordinatorOptions options;
  options.version = kFakeVersion;
  options.max_clock_error = std::chrono::seconds(1);  // this machine may be busy
  return options;
}

Job JobOf(const std::string& mode) {
  Job job;
  job.workload_toml = std::to_string(kRequests);
  job.endpoints = {"one", "two"};
  job.flags["mode"] = mode;
  return job;
}

std::string Refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// False when it still runs after a minute.
bool HasEnded(pid_t process) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (descriptor < 0) return true;  // even its id is gone
  pollfd ended{descriptor, POLLIN, 0};
  const bool yes = poll(&ended, 1, kPatienceMs) == 1;
  close(descriptor);
  return yes;
}

// A coordinator of which the test writes each message itself.
class RawCoordinator {
 public:
  explicit RawCoordinator(const std::string& address, const std::string& token = "")
      : stub_(wire::LoadWorker::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    if (!token.empty()) context_.AddMetadata("authorization", Bearer(token));
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::milliseconds(kPatienceMs));
    stream_ = stub_->Run(&context_);
  }
  ~RawCoordinator() { context_.TryCancel(); }

  void Prepare(const std::string& mode) {
    wire::RunRequest request;
    *request.mutable_prepare() = ToMessage(JobOf(mode), kFakeVersion);
    stream_->Write(request);
  }
  void StartIn(std::chrono::nanoseconds ahead) {
    wire::RunRequest request;
    request.mutable_start()->set_unix_ns(
        std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch() + ahead)
            .count());
    stream_->Write(request);
  }
  void Write(const wire::RunRequest& request) { stream_->Write(request); }
  // The next message; STEP_NOT_SET at the end of the stream.
  wire::RunResponse Read() {
    wire::RunResponse response;
    if (!stream_->Read(&response)) response.Clear();
    return response;
  }
  void Vanish() { context_.TryCancel(); }
  grpc::Status Finish() {
    stream_->WritesDone();
    while (Read().step_case() != wire::RunResponse::STEP_NOT_SET) {
    }
    return stream_->Finish();
  }

 private:
  const std::unique_ptr<wire::LoadWorker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<wire::RunRequest, wire::RunResponse>> stream_;
};

// Ends when the worker has been told to stop: a test that hangs would fail by its time limit.
void AwaitIdle(const std::string& address) {
  for (;;) {
    RawCoordinator probe(address);
    probe.Prepare("count");
    if (probe.Read().has_prepared()) return;
  }
}

void ExpectSame(const RunData& merged, const RunData& whole) {
  EXPECT_EQ(merged.Total().planned(), whole.Total().planned());
  EXPECT_EQ(merged.Total().of(Outcome::kOk), whole.Total().of(Outcome::kOk));
  for (const double quantile : {0.01, 0.5, 0.99, 1.0}) {
    EXPECT_EQ(merged.Total().intended.ValueAt(quantile), whole.Total().intended.ValueAt(quantile));
  }
  EXPECT_EQ(merged.Total().intended.mean(), whole.Total().intended.mean());
  ASSERT_EQ(merged.seconds.size(), whole.seconds.size());
  for (size_t i = 0; i < whole.seconds.size(); ++i) {
    ASSERT_EQ(merged.seconds[i][0].outcomes, whole.seconds[i][0].outcomes) << "second " << i;
  }
}

TEST(Workers, SendExactlyThePlanTogetherAndBeginTogether) {
  (void)testing::TakeFakeBegins();
  WorkerServer a(Options(), PrepareFake), b(Options(), PrepareFake), c(Options(), PrepareFake);
  const SharedRun run = RunOnWorkers({{a.address(), ""}, {b.address(), ""}, {c.address(), ""}},
                                     JobOf("count"), Patient(), {}, kNever);
  EXPECT_TRUE(run.finding().passed) << run.finding().text;
  EXPECT_EQ(run.finding().rule, "workers");
  ExpectSame(run.data, testing::WholeFake(kRequests));
  const auto begins = testing::TakeFakeBegins();
  ASSERT_EQ(begins.size(), 3u);
  std::chrono::nanoseconds error{std::chrono::milliseconds(50)};  // between readings of two clocks
  for (const WorkerReport& worker : run.workers) error += worker.clock_error;
  for (const auto& begin : begins) {
    EXPECT_LT(std::chrono::abs(begin - begins[0]), error);
  }
  // The same workers take the next job.
  ExpectSame(
      RunOnWorkers({{a.address(), ""}, {b.address(), ""}}, JobOf("count"), Patient(), {}, kNever)
          .data,
      testing::WholeFake(kRequests));
}

TEST(Workers, TellTheirProgressTogetherAndStopTogether) {
  WorkerServer a(Options(), PrepareFake), b(Options(), PrepareFake);
  std::atomic<bool> stop = false;
  const SharedRun run = RunOnWorkers(
      {{a.address(), ""}, {b.address(), ""}}, JobOf("until-stopped"), Patient(),
      [&](const Progress& progress) {
        EXPECT_EQ(progress.classes, std::vector<std::string>{"fake"});
        if (progress.in_flight == 2) stop = true;  // of both workers
      },
      stop);
  EXPECT_TRUE(run.finding().passed) << run.finding().text;
  ExpectSame(run.data, testing::WholeFake(kRequests));
}

TEST(Workers, OneThatDiesMidRunMakesTheRunInvalidAndIsNamed) {
  LocalWorkers local(2, CASTOR_FAKE_WORKER);
  bool killed = false;
  const SharedRun run = RunOnWorkers(
      local.addresses(), JobOf("until-stopped"), Patient(),
      [&](const Progress&) {
        if (!killed) kill(local.processes()[1], SIGKILL);
        killed = true;
      },
      kNever);
  EXPECT_TRUE(killed);
  const Finding finding = run.finding();
  EXPECT_FALSE(finding.passed);
  EXPECT_NE(finding.text.find(local.addresses()[1].target), std::string::npos) << finding.text;
  EXPECT_EQ(finding.text.find(local.addresses()[0].target), std::string::npos) << finding.text;
  EXPECT_EQ(run.workers[0].failure, "");
  EXPECT_EQ(run.data.Total().planned(), (kRequests + 1) / 2);  // what the other one measured
}

TEST(Workers, OneThatFailsMidRunStopsTheOthersAndSaysWhy) {
  WorkerServer a(Options(), PrepareFake), b(Options(), PrepareFake);
  const SharedRun run = RunOnWorkers({{a.address(), ""}, {b.address(), ""}}, JobOf("fail-in-run"),
                                     Patient(), {}, kNever);
  EXPECT_FALSE(run.finding().passed);
  EXPECT_NE(run.finding().text.find("'" + b.address() + "' failed: the disk is full"),
            std::string::npos)
      << run.finding().text;
  EXPECT_EQ(run.data.Total().planned(), (kRequests + 1) / 2);
}

TEST(Workers, OneThatCannotPrepareEndsTheRunBeforeItBegins) {
  (void)testing::TakeFakeBegins();
  WorkerServer a(Options(), PrepareFake), b(Options(), PrepareFake);
  const std::string refusal = Refusal([&] {
    RunOnWorkers({{a.address(), ""}, {b.address(), ""}}, JobOf("fail-in-prepare"), Patient(), {},
                 kNever);
  });
  EXPECT_EQ(refusal, "worker '" + b.address() + "': no such model");
  AwaitIdle(a.address());
  EXPECT_TRUE(testing::TakeFakeBegins().empty());
}

TEST(Workers, JobEndsWhenTheCoordinatorVanishes) {
  WorkerServer worker(Options(), PrepareFake);
  {
    RawCoordinator coordinator(worker.address());
    coordinator.Prepare("until-stopped");
    ASSERT_TRUE(coordinator.Read().has_prepared());
    coordinator.StartIn(std::chrono::seconds(1));
    ASSERT_TRUE(coordinator.Read().has_progress());  // it runs
    coordinator.Vanish();
  }
  AwaitIdle(worker.address());  // the job would never end by itself
}

TEST(Workers, JobEndsWhenTheWorkerIsShutDown) {
  WorkerServer worker(Options(), PrepareFake);
  RawCoordinator coordinator(worker.address());
  coordinator.Prepare("until-stopped");
  ASSERT_TRUE(coordinator.Read().has_prepared());
  coordinator.StartIn(std::chrono::seconds(1));
  ASSERT_TRUE(coordinator.Read().has_progress());
  worker.Shutdown();
  EXPECT_FALSE(coordinator.Finish().ok());
}

TEST(Workers, AskForTheirToken) {
  WorkerServer worker(Options(kToken), PrepareFake);
  const auto run_with = [&](const std::string& token) {
    return Refusal([&] {
      RunOnWorkers({{worker.address(), token}}, JobOf("count"), Patient(), {}, kNever);
    });
  };
  std::string other = kToken;
  other.back() = 'x';
  for (const std::string& wrong : {std::string(), other, std::string(kToken) + "0"}) {
    const std::string refusal = run_with(wrong);
    EXPECT_NE(refusal.find("UNAUTHENTICATED"), std::string::npos) << refusal;
    EXPECT_NE(refusal.find(worker.address()), std::string::npos) << refusal;
    RawCoordinator raw(worker.address(), wrong);
    raw.Prepare("count");
    EXPECT_EQ(raw.Finish().error_code(), grpc::UNAUTHENTICATED);
  }
  EXPECT_EQ(run_with(kToken), "");
}

TEST(Workers, AreOfTheCoordinatorsVersion) {
  WorkerServer worker(Options(), PrepareFake);
  CoordinatorOptions options = Patient();
  options.version = "1.2.3";
  const std::string refusal = Refusal([&] {
    RunOnWorkers({{worker.address(), ""}}, JobOf("count"), options, {}, kNever);
  });
  EXPECT_NE(refusal.find("1.2.3"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find(kFakeVersion), std::string::npos) << refusal;
}

TEST(Workers, TakeOneJobAtATime) {
  WorkerServer worker(Options(), PrepareFake);
  RawCoordinator first(worker.address());
  first.Prepare("count");
  ASSERT_TRUE(first.Read().has_prepared());
  const std::string refusal = Refusal([&] {
    RunOnWorkers({{worker.address(), ""}}, JobOf("count"), Patient(), {}, kNever);
  });
  EXPECT_NE(refusal.find("another job"), std::string::npos) << refusal;
  // The first goes on.
  first.StartIn(std::chrono::seconds(1));
  EXPECT_TRUE(first.Read().has_result());
  EXPECT_TRUE(first.Finish().ok());
}

TEST(Workers, BeginNothingThatShouldHaveBegunBefore) {
  WorkerServer worker(Options(), PrepareFake);
  for (const auto ahead : {std::chrono::seconds(-1), std::chrono::seconds(7200)}) {
    RawCoordinator coordinator(worker.address());
    coordinator.Prepare("count");
    ASSERT_TRUE(coordinator.Read().has_prepared());
    coordinator.StartIn(ahead);
    const wire::RunResponse answer = coordinator.Read();
    ASSERT_TRUE(answer.has_failure());
    EXPECT_NE(answer.failure().message().find("clocks differ"), std::string::npos);
    EXPECT_TRUE(coordinator.Finish().ok());
  }
}

TEST(Workers, RefuseWhatIsNoJob) {
  WorkerServer worker(Options(), PrepareFake);
  const auto code_of = [&](const wire::RunRequest& request) {
    RawCoordinator coordinator(worker.address());
    coordinator.Write(request);
    return coordinator.Finish().error_code();
  };
  wire::RunRequest request;
  EXPECT_EQ(code_of(request), grpc::INVALID_ARGUMENT);
  request.mutable_stop();
  EXPECT_EQ(code_of(request), grpc::INVALID_ARGUMENT);
  *request.mutable_prepare() = ToMessage(JobOf("count"), kFakeVersion);
  request.mutable_prepare()->set_index(1);  // of 1
  EXPECT_EQ(code_of(request), grpc::INVALID_ARGUMENT);
  request.mutable_prepare()->set_index(0);
  request.mutable_prepare()->clear_endpoints();
  EXPECT_EQ(code_of(request), grpc::INVALID_ARGUMENT);
  *request.mutable_prepare() = ToMessage(JobOf("count"), kFakeVersion);
  request.mutable_prepare()->set_workload_toml(std::string(9 << 20, '#'));
  EXPECT_EQ(code_of(request), grpc::RESOURCE_EXHAUSTED);
  AwaitIdle(worker.address());
}

TEST(Workers, WhoseClocksCannotBeReadWellEnoughAreRefused) {
  WorkerServer worker(Options(), PrepareFake);
  CoordinatorOptions options = Patient();
  options.max_clock_error = std::chrono::nanoseconds(1);
  const std::string refusal = Refusal([&] {
    RunOnWorkers({{worker.address(), ""}}, JobOf("count"), options, {}, kNever);
  });
  EXPECT_NE(refusal.find("clock of worker '" + worker.address()), std::string::npos) << refusal;
}

TEST(Workers, ThatAreNotThereAreNamed) {
  std::string address;
  { address = WorkerServer(Options(), PrepareFake).address(); }
  CoordinatorOptions options = Patient();
  options.connect_timeout = std::chrono::milliseconds(100);
  const std::string refusal = Refusal([&] {
    RunOnWorkers({{address, ""}}, JobOf("count"), options, {}, kNever);
  });
  EXPECT_NE(refusal.find("cannot connect to worker '" + address), std::string::npos) << refusal;
}

TEST(Workers, ListenForOtherMachinesOnlyWithAToken) {
  WorkerOptions options = Options();
  options.listen = "0.0.0.0:0";
  EXPECT_THROW(WorkerServer(options, PrepareFake), std::invalid_argument);
  options.token = kToken;
  EXPECT_EQ(Refusal([&] { WorkerServer(options, PrepareFake); }), "");
  options.listen = "127.0.0.1:notaport";
  EXPECT_NE(Refusal([&] { WorkerServer(options, PrepareFake); }).find("notaport"),
            std::string::npos);
}

TEST(LocalWorkers, RunThePlanAndAreGoneAfterwards) {
  std::vector<pid_t> processes;
  std::string folder;
  {
    LocalWorkers local(2, CASTOR_FAKE_WORKER);
    processes = local.processes();
    folder = std::filesystem::path(local.addresses()[0].target.substr(5)).parent_path();
    EXPECT_EQ(std::filesystem::status(folder).permissions(), std::filesystem::perms::owner_all);
    ExpectSame(RunOnWorkers(local.addresses(), JobOf("count"), Patient(), {}, kNever).data,
               testing::WholeFake(kRequests));
    // A process that does not know the token is none of ours.
    EXPECT_NE(Refusal([&] {
                RunOnWorkers({{local.addresses()[0].target, kToken}}, JobOf("count"), Patient(), {},
                             kNever);
              }).find("UNAUTHENTICATED"),
              std::string::npos);
  }
  for (const pid_t process : processes) EXPECT_NE(kill(process, 0), 0);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(LocalWorkers, SayThatTheirProgramDoesNotStart) {
  EXPECT_NE(Refusal([] { LocalWorkers(1, "/nonexistent/castor-load"); }).find("worker process 0"),
            std::string::npos);
}

TEST(LocalWorkers, EndWithTheirParentHoweverItEnds) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const char* argv[] = {CASTOR_FAKE_WORKER, "parent", nullptr};
  pid_t parent = -1;
  ASSERT_EQ(posix_spawn(&parent, argv[0], &actions, nullptr, const_cast<char**>(argv), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  FILE* output = fdopen(ends[0], "r");
  int workers[2] = {};
  EXPECT_EQ(fscanf(output, "%d %d", &workers[0], &workers[1]), 2);
  fclose(output);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  for (const pid_t worker : workers) {
    if (worker > 0) {
      EXPECT_TRUE(HasEnded(worker));
    }
  }
}

}  // namespace
}  // namespace castor::load
