// The castor command with careless input: values that are not numbers, files of the wrong kind,
// output that cannot be written. Each must end in the documented exit code and one line with the
// name and the cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "client/npy.h"
#include "client/tensor.h"
#include "tests/integration/client/cli_fixture.h"
#include "tests/support/sanitizer.h"

namespace castor::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliCarelessTest : public CliTest {};

// flags_test.cc has more values.
TEST_F(CliCarelessTest, WrongValuesAreUsageErrorsOfTheirFlag) {
  const std::vector<std::string> kCases[] = {
      {"attend", "--lengths", "nan"},    {"attend", "--key-lengths", ""},
      {"attend", "--heads", "-1"},       {"attend", "--value-dim", "nan"},
      {"attend", "--seed", "-1"},        {"attend", "--surrogate-tokens", ""},
      {"attend", "--scale", "nan"},      {"attend", "--fidelity-rows", "-1"},
      {"attend", "--timeout", "-1"},     {"attend", "--tolerance", ""},
      {"attend", "--query", ""},         {"attend", "--server", ""},
      {"encode", "--dimensions", "0"},   {"encode", "--batch", "0"},
      {"encode", "--text-file", ""},     {"encode", "--file", ""},
      {"encode", "--model", ""},         {"encode", "--model", "\xff"},
      {"encode", "--pair", "\xff", "a"}, {"encode", "--embeddings", ""},
  };
  for (const std::vector<std::string>& arguments : kCases) {
    EXPECT_THAT(ErrorOf(2, arguments), HasSubstr(arguments[1])) << arguments[1];
  }
  EXPECT_THAT(OutputOf({"attend", "--lengths", "010", "--heads", "+2"}),
              HasSubstr("query [10, 2, 64]"));
  EXPECT_THAT(OutputOf({"attend", "--lengths", "9", "--scale", "-0.5"}), HasSubstr("passed"));
}

TEST_F(CliCarelessTest, MistypedNamesSuggestTheNearest) {
  EXPECT_THAT(ErrorOf(2, {"encodee", "a text"}), HasSubstr("did you mean encode?"));
  EXPECT_THAT(ErrorOf(2, {"haelth"}), HasSubstr("did you mean health?"));
  EXPECT_THAT(ErrorOf(2, {"encode", "a text", "--modle", "m"}),
              HasSubstr("--modle is not a flag of castor encode; did you mean --model?"));
  EXPECT_THAT(ErrorOf(2, {"frobnicate"}),
              HasSubstr("'frobnicate' is not a subcommand; see castor --help"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--fidelity-row=1"}),
              HasSubstr("did you mean --fidelity-rows?"));
  EXPECT_THAT(ErrorOf(2, {"health", "--frobnicate"}),
              HasSubstr("--frobnicate is not a flag of castor health; see castor health --help"));
  EXPECT_THAT(ErrorOf(2, {"--server", address_, "health"}),
              HasSubstr("--server belongs after castor health"));
  EXPECT_THAT(ErrorOf(2, {}), HasSubstr("subcommand is required"));
}

TEST_F(CliCarelessTest, AServerIsNoUrl) {
  EXPECT_THAT(ErrorOf(2, {"health", "--server", "http://" + address_ + "/"}),
              AllOf(HasSubstr("HOST:PORT, not a URL: " + address_ + ";")));
  EXPECT_THAT(ErrorOf(2, {"health", "--server", "https://castor:1"}), HasSubstr("with --tls"));
  EXPECT_EQ(Run({"health"}, "", "dns:///" + address_).out, "SERVING\n");
}

TEST_F(CliCarelessTest, OptionsWithoutEffectNameWhatTheyNeed) {
  const std::string file = InFolder("t.npy");
  ASSERT_TRUE(client::WriteNpy(file, client::MakeTensor(std::vector<float>(6), {3, 1, 2})).ok());
  const auto attend = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "attend");
    return ErrorOf(2, flags);
  };
  const auto of_files = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--query", file, "--key", file, "--value", file});
    return attend(flags);
  };
  EXPECT_THAT(attend({"--kernel", "clustered,topk=9"}),
              HasSubstr("--kernel: 'topk' is not a parameter of clustered, which takes clusters,"));
  EXPECT_THAT(attend({"--fidelity-rows", "9"}), HasSubstr("--fidelity-rows: needs --kernel"));
  EXPECT_THAT(attend({"--surrogate-tokens", "9"}), HasSubstr("needs --kernel cast"));
  EXPECT_THAT(attend({"--no-check", "--tolerance", "1"}), HasSubstr("--no-check"));
  EXPECT_THAT(of_files({"--tolerance", "1"}), HasSubstr("--tolerance: needs a random problem"));
  for (const char* drawn : {"--heads", "--kv-heads", "--head-dim", "--value-dim", "--seed"}) {
    EXPECT_THAT(of_files({drawn, "2"}), AllOf(HasSubstr(drawn), HasSubstr("--query")));
  }
  EXPECT_THAT(ErrorOf(2, {"encode", "--ids", "1 2", "--batch", "9"}), HasSubstr("--batch"));
  EXPECT_THAT(ErrorOf(2, {"encode", "--ids", "1 2", "--allow-special-tokens"}),
              HasSubstr("--allow-special-tokens"));
}

TEST_F(CliCarelessTest, TheFormatIsThatOfTheFilesName) {
  OutputOf({"attend", "--lengths", "5", "-f", InFolder("o.npy")});
  EXPECT_TRUE(client::ReadNpy(InFolder("o.npy")).ok());
  OutputOf({"attend", "--lengths", "5", "-f", InFolder("o.json")});
  EXPECT_EQ(ReadFile(InFolder("o.json"))[0], '{');
  EXPECT_THAT(ErrorOf(2, {"attend", "--lengths", "5", "-o", "table", "-f", InFolder("p.npy")}),
              AllOf(HasSubstr("p.npy"), HasSubstr("needs --output npy")));
  EXPECT_THAT(ErrorOf(2, {"attend", "--lengths", "5", "-o", "npy", "-f", InFolder("p.json")}),
              HasSubstr("needs --output json"));
  EXPECT_THAT(ErrorOf(2, {"info", "-f", InFolder("p.npy")}), HasSubstr("cannot write .npy"));
  EXPECT_EQ(ReadFile(InFolder("p.npy")) + ReadFile(InFolder("p.json")), "");
}

TEST_F(CliCarelessTest, ThisMachineIsReachedPastEveryProxy) {
  const std::string everywhere = "0.0.0.0" + address_.substr(address_.find(':'));
  for (const char* variable : {"http_proxy", "https_proxy", "grpc_proxy"}) {
    ASSERT_EQ(setenv(variable, "http://127.0.0.1:1", 1), 0);
  }
  EXPECT_EQ(Run({"health", "--timeout", "5"}, "", everywhere).out, "SERVING\n");
  for (const char* variable : {"http_proxy", "https_proxy", "grpc_proxy"}) unsetenv(variable);
}

TEST_F(CliCarelessTest, InputFilesThatCannotBeReadAreNamedWithTheCause) {
  const auto is_directory = AllOf(HasSubstr(folder_), HasSubstr("Is a directory"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--query", folder_, "--key", folder_, "--value", folder_}),
              is_directory);
  EXPECT_THAT(ErrorOf(2, {"attend", "--kernel", "cast,gate=" + folder_}), is_directory);
  EXPECT_THAT(ErrorOf(2, {"attend", "--kernel", "cast,surrogate-tokens=" + folder_}), is_directory);
  EXPECT_THAT(ErrorOf(2, {"encode", "--embeddings", folder_}), is_directory);
  EXPECT_THAT(ErrorOf(2, {"encode", "--text-file", folder_}), is_directory);
  EXPECT_THAT(ErrorOf(2, {"encode", "--text-file", "/nope"}),
              AllOf(HasSubstr("/nope"), HasSubstr("No such file")));
  EXPECT_THAT(ErrorOf(2, {"encode"}, "", "<" + folder_),
              AllOf(HasSubstr("standard input"), HasSubstr("Is a directory")));
  EXPECT_THAT(ErrorOf(2, {"encode"}, "", "<&-"), HasSubstr("cannot read standard input"));
  EXPECT_THAT(ErrorOf(2, {"encode"}, "", "<&- >&-"), HasSubstr("cannot read standard input"));
  EXPECT_THAT(ErrorOf(2, {"encode", "--text-file", InFolder("in")}), HasSubstr("contains no text"));
  // A device that never ends.
  EXPECT_THAT(ErrorOf(2, {"encode", "--embeddings", "/dev/zero"}), HasSubstr("not a .npy file"));
}

TEST_F(CliCarelessTest, OutputThatCannotBeWrittenIsAnErrorWithItsCause) {
  const auto no_space = HasSubstr("No space left on device");
  const auto to_full = [&](const std::vector<std::string>& arguments) {
    return ErrorOf(2, arguments, "", ">/dev/full");
  };
  EXPECT_THAT(to_full({"health"}), AllOf(no_space, HasSubstr("standard output")));
  EXPECT_THAT(to_full({"attend", "--lengths", "5", "-o", "json"}), no_space);
  EXPECT_THAT(to_full({"--help"}), no_space);
  EXPECT_THAT(to_full({"attend", "--help"}), no_space);
  EXPECT_THAT(to_full({"--version"}), no_space);
  for (const char* closed : {">&-", "<&- >&-"}) {
    EXPECT_THAT(ErrorOf(2, {"health"}, "", closed),
                AllOf(HasSubstr("standard output"), HasSubstr("Bad file descriptor")))
        << closed;
  }
  EXPECT_EQ(Run({"health"}, "", address_, "2>&-").out, "SERVING\n");

  for (const char* format : {"table", "npy"}) {
    const auto into = [&](const std::string& file) {
      return ErrorOf(2, {"attend", "--lengths", "5", "-o", format, "-f", file});
    };
    EXPECT_THAT(into("/dev/full"), AllOf(no_space, HasSubstr("/dev/full"))) << format;
    EXPECT_THAT(into(folder_), AllOf(HasSubstr("Is a directory"), HasSubstr(folder_))) << format;
    EXPECT_THAT(into("/no/such/x"), AllOf(HasSubstr("No such file"), HasSubstr("/no/such/x")));
  }
}

TEST_F(CliCarelessTest, AClosedPipeEndsTheCommand) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  const std::string to_pipe = ">&" + std::to_string(ends[1]);
  const Outcome ended = Run({"health"}, "", address_, to_pipe);
  EXPECT_EQ(ended.exit_code, 128 + SIGPIPE);
  EXPECT_EQ(ended.err, "");
  // The same when the parent process ignores the signal.
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  EXPECT_THAT(ErrorOf(2, {"health"}, "", to_pipe), HasSubstr("Broken pipe"));
  std::signal(SIGPIPE, before);
  close(ends[1]);
}

TEST_F(CliCarelessTest, ProblemsTooLargeForAMessageAreRefusedBeforeTheyAreDrawn) {
  EXPECT_THAT(ErrorOf(2, {"attend", "--lengths", "99999999999"}), HasSubstr("2 GiB"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--lengths", "1000000"}), HasSubstr("2 GiB"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--lengths", "5", "--kernel", "cast", "--surrogate-tokens",
                          "16777216"}),
              HasSubstr("2 GiB"));
}

TEST_F(CliCarelessTest, NoMemoryIsOneLine) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory has no room within the limit";
  // An endless line, into an address space of 600 MB.
  const std::string limited =
      "ulimit -v 600000; " CASTOR_PROGRAM " encode --text-file /dev/zero 2>" + InFolder("err");
  EXPECT_EQ(std::system(limited.c_str()), 2 << 8);
  EXPECT_EQ(ReadFile(InFolder("err")), "castor: not enough memory on this machine\n");
}

TEST_F(CliCarelessTest, InvalidUtf8IsRefusedWithItsPlace) {
  WriteFile(InFolder("bad"), "fine\nb\xff\x61\n");
  EXPECT_THAT(ErrorOf(2, {"encode", "--text-file", InFolder("bad")}),
              AllOf(HasSubstr("line 2"), HasSubstr(InFolder("bad")), HasSubstr("byte 2")));
  EXPECT_THAT(ErrorOf(2, {"encode"}, "\xc3"), HasSubstr("line 1 of standard input"));
}

TEST_F(CliCarelessTest, NoServerIsToldInTime) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"encode", "x", "--timeout", "2"}, {"attend", "--lengths", "5", "--timeout", "2"}}) {
    const Outcome outcome = Run(arguments, "", "127.0.0.1:1");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("Connection refused"),
                                   HasSubstr("is castor-server running at 127.0.0.1:1")));
  }
}

TEST_F(CliCarelessTest, PipesAreInputsLikeAnyOther) {
  const std::string pipe = InFolder("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const v1::Tensor one = client::MakeTensor(std::vector<float>(6, 1.0f), {3, 1, 2});
  ASSERT_TRUE(client::WriteNpy(InFolder("one.npy"), one).ok());
  std::thread writer([&] { EXPECT_TRUE(client::WriteNpy(pipe, one).ok()); });
  EXPECT_THAT(OutputOf({"attend", "--query", pipe, "--key", InFolder("one.npy"), "--value",
                        InFolder("one.npy")}),
              HasSubstr("output       [3, 1, 2]"));
  writer.join();
  if (!HaveModel()) return;
  std::thread text_writer([&] { WriteFile(pipe, std::string("with\0nul\nsecond", 15)); });
  EXPECT_THAT(OutputOf({"encode", "--text-file", pipe}), HasSubstr("second"));
  text_writer.join();
}

}  // namespace
}  // namespace castor::cli
