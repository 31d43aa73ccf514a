// Callers by token and by certificate, over real sockets: who is let in as whom, and what everybody
// else is told and counted as.

#include <grpcpp/channel.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "castor/v1/model.grpc.pb.h"
#include "castor/v1/server.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/integration/access/secure_fixture.h"
#include "tests/support/sanitizer.h"

namespace castor::testing {
namespace {

constexpr char kToken[] = "castor_beaver";
constexpr char kOtherToken[] = "castor_otter";

std::string Bearer(const std::string& token) { return "Bearer " + token; }

class ServerCallersTest : public SecureServerTest {
 protected:
  // "OK TENANT", or as Outcome says it.
  std::string As(const std::shared_ptr<grpc::Channel>& channel,
                 const std::string& authorization = "") {
    const grpc::Status status = Attend(channel, authorization);
    return status.ok() ? "OK " + engine_->last_call()->tenant : Outcome(status);
  }
  std::string WithToken(const std::string& token) { return As(channel_, Bearer(token)); }

  // How often callers were refused for it.
  double RefusedFor(const std::string& reason) const {
    return Metric("castor_callers_refused_total{reason=\"" + reason + "\"}");
  }
  // Expects one call to be refused, and to be counted as `reason`.
  void ExpectRefused(const std::string& authorization, const std::string& outcome,
                     const std::string& reason) {
    SCOPED_TRACE(authorization);
    const double before = RefusedFor(reason);
    const int64_t admitted = engine_->admitted();
    const grpc::Status status = Attend(channel_, authorization);
    EXPECT_EQ(Outcome(status), outcome);
    EXPECT_EQ(status.error_message().find("castor_"), std::string::npos) << status.error_message();
    EXPECT_EQ(RefusedFor(reason), before + 1);
    EXPECT_EQ(engine_->admitted(), admitted);
  }

  template <typename Stub, typename Request, typename Response>
  std::string Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                   Stub& stub, const Request& request, const std::string& token) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Patience(std::chrono::seconds(60)));
    if (!token.empty()) context.AddMetadata("authorization", Bearer(token));
    Response response;
    return Outcome((stub.*method)(&context, request, &response));
  }
};

constexpr char kNobody[] = "UNAUTHENTICATED UNAUTHENTICATED";
constexpr char kMayNot[] = "PERMISSION_DENIED PERMISSION_DENIED";

TEST_F(ServerCallersTest, EverybodyElseIsToldAndCounted) {
  StartSecure(
      WithCallers(CallerEntry("beaver", kToken) +
                  CallerEntry("mole", "castor_mole", "expires = 2020-01-01T00:00:00Z") +
                  CallerEntry("hare", "castor_hare", "allow = [\"castor.v1.EncoderService\"]")));
  ExpectRefused("", kNobody, "no_credential");
  ExpectRefused("Bearer castor_weasel", kNobody, "unknown_token");
  ExpectRefused("Bearer castor_beave", kNobody, "unknown_token");
  ExpectRefused("Bearer castor_BEAVER", kNobody, "unknown_token");
  ExpectRefused("Bearer castor_mole", kNobody, "expired");
  ExpectRefused("Bearer castor_hare", kMayNot, "not_allowed");
  for (const char* const odd :
       {"Bearer", "castor_beaver", "Basic YmVhdmVyOmNhc3Rvcl9iZWF2ZXI=",
        "Bearer castor_beaver, Bearer x", "Bearer castor_beaver x", "Bearer,castor_beaver",
        "Token castor_beaver", "Bearer castor_\"beaver"}) {
    ExpectRefused(odd, kNobody, "malformed");
  }
  ExpectRefused("Bearer " + std::string(1025, 'a'), kNobody, "malformed");
  EXPECT_EQ(WithToken(kToken), "OK beaver");
}

TEST_F(ServerCallersTest, TwoTokensInOneCallAreNone) {
  StartSecure(WithCallers(CallerEntry("beaver", kToken)));
  for (const char* const second : {kToken, "castor_weasel"}) {
    AttendCall call;
    call.context.AddMetadata("authorization", Bearer(kToken));
    call.context.AddMetadata("authorization", Bearer(second));
    EXPECT_EQ(Outcome(call.Run(*attention_, AttendOf(1))), kNobody);
  }
  EXPECT_EQ(RefusedFor("malformed"), 2);
}

TEST_F(ServerCallersTest, ACallerMayDoWhatItsEntryAllows) {
  StartSecure(WithCallers(
      CallerEntry("beaver", kToken, "allow = [\"castor.v1.AttentionService/Attend\"]") +
      CallerEntry("otter", kOtherToken, "allow = [\"castor.v1.ModelService\", \"metrics\"]")));
  const auto models = v1::ModelService::NewStub(channel_);
  const auto info = v1::ServerService::NewStub(channel_);
  using Models = v1::ModelService::Stub;
  using Info = v1::ServerService::Stub;
  const v1::ListModelsRequest list;
  EXPECT_EQ(WithToken(kToken), "OK beaver");
  EXPECT_EQ(Call(&Models::ListModels, *models, list, kToken), kMayNot);
  EXPECT_EQ(Call(&Info::GetServerInfo, *info, v1::GetServerInfoRequest(), kToken), kMayNot);
  EXPECT_EQ(WithToken(kOtherToken), kMayNot);
  EXPECT_EQ(Call(&Models::ListModels, *models, list, kOtherToken), "OK");
  EXPECT_EQ(Call(&Models::ListModels, *models, list, ""), kNobody);
}

TEST_F(ServerCallersTest, HealthIsOpenToAll) {
  StartSecure(WithCallers(CallerEntry("beaver", kToken)));
  const auto health = grpc::health::v1::Health::NewStub(channel_);
  const grpc::health::v1::HealthCheckRequest request;
  for (const char* const token : {"", "castor_weasel"}) {
    EXPECT_EQ(Call(&grpc::health::v1::Health::Stub::Check, *health, request, token), "OK");
  }
  EXPECT_EQ(RefusedFor("no_credential"), 0);
  // It names the models.
  const grpc::health::v1::HealthListRequest list;
  EXPECT_EQ(Call(&grpc::health::v1::Health::Stub::List, *health, list, ""), kNobody);
  EXPECT_EQ(Call(&grpc::health::v1::Health::Stub::List, *health, list, kToken), "OK");
}

TEST_F(ServerCallersTest, TokensRotateWithoutAGap) {
  const std::string old = CallerEntry("beaver", kToken);
  const std::string young = CallerEntry("beaver", kOtherToken);
  StartSecure(WithCallers(old));
  EXPECT_EQ(WithToken(kOtherToken), kNobody);
  ReplaceCallers(old + young);
  ASSERT_TRUE(AwaitReloads("callers", "taken", 1));
  EXPECT_EQ(WithToken(kToken), "OK beaver");
  EXPECT_EQ(WithToken(kOtherToken), "OK beaver");
  ReplaceCallers(young);
  ASSERT_TRUE(AwaitReloads("callers", "taken", 2));
  EXPECT_EQ(WithToken(kToken), kNobody);  // on a connection that it was used on
  EXPECT_EQ(WithToken(kOtherToken), "OK beaver");
  EXPECT_EQ(Metric("castor_connections"), 1);
}

TEST_F(ServerCallersTest, AFileThatIsWrongChangesNothing) {
  const std::string good = CallerEntry("beaver", kToken);
  StartSecure(WithCallers(good));
  double refused = 0;
  const std::string both = good + CallerEntry("otter", kOtherToken);
  for (const std::string& wrong :
       {both, CallersFile(""), std::string(),
        CallersFile("[[caller]]\nname = \"otter\"\nsha256 = \"" + std::string(kOtherToken) +
                    "\"\n"),
        CallersFile(good + good), CallersFile(good + "[tenant.otter]\nweight = 2\n"),
        good.substr(0, good.size() / 2), both.substr(0, both.rfind("allow =")),
        CallersFile(CallerEntry("otter", kOtherToken, "allow = [\"castor.v1.NoService\"]"))}) {
    SCOPED_TRACE(wrong);
    ReplaceText(folder_ / "callers.toml", wrong);
    ASSERT_TRUE(AwaitReloads("callers", "refused", ++refused));
    EXPECT_EQ(Standing("callers"), 1);
    EXPECT_EQ(WithToken(kToken), "OK beaver");
    EXPECT_EQ(WithToken(kOtherToken), kNobody);
  }
  std::filesystem::remove(folder_ / "callers.toml");
  ASSERT_TRUE(AwaitReloads("callers", "refused", ++refused));
  EXPECT_EQ(WithToken(kToken), "OK beaver");
  ReplaceCallers(CallerEntry("otter", kOtherToken));
  ASSERT_TRUE(AwaitReloads("callers", "taken", 1));
  EXPECT_EQ(Standing("callers"), 0);
  EXPECT_EQ(WithToken(kOtherToken), "OK otter");
}

TEST_F(ServerCallersTest, TheEngineLearnsTheTenantsTerms) {
  const std::string callers = CallerEntry("beaver", kToken) + CallerEntry("otter", kOtherToken);
  StartSecure(WithCallers(callers + "[tenant.beaver]\nweight = 2.5\nmax_queued_requests = 10\n"
                                    "max_queued_tokens = 1000\nmax_queued_bytes = \"1MiB\"\n"));
  ASSERT_TRUE(engine_->tenants().has_value());
  std::map<std::string, TenantTerms> tenants = *engine_->tenants();
  ASSERT_EQ(tenants.size(), 1U);
  EXPECT_EQ(tenants["beaver"].weight, 2.5);
  EXPECT_EQ(tenants["beaver"].max_queued_requests, 10);
  EXPECT_EQ(tenants["beaver"].max_queued_tokens, 1000);
  EXPECT_EQ(tenants["beaver"].max_queued_bytes, 1 << 20);
  ReplaceCallers(callers + "[tenant.otter]\nweight = 4\n");
  ASSERT_TRUE(AwaitReloads("callers", "taken", 1));
  tenants = *engine_->tenants();
  ASSERT_EQ(tenants.size(), 1U);
  EXPECT_EQ(tenants["otter"].weight, 4);
}

// Metadata is what a caller says; the tenant is who it is.
TEST_F(ServerCallersTest, NobodyChoosesItsTenant) {
  StartSecure(WithCallers(CallerEntry("beaver", kToken) + CallerEntry("otter", kOtherToken)));
  for (const char* const claim : {"otter", "", "no name at all"}) {
    AttendCall call;
    call.context.AddMetadata("authorization", Bearer(kToken));
    call.context.AddMetadata("castor-tenant", claim);
    EXPECT_EQ(Outcome(call.Run(*attention_, AttendOf(1))), "OK");
    EXPECT_EQ(engine_->last_call()->tenant, "beaver");
  }
}

// ---- certificates ------------------------------------------------------------------------------

TEST_F(ServerCallersTest, ANameInACertificateSaysWhoCalls) {
  StartSecure(WithCallers(CertificateEntry("beaver", "spiffe://example/beaver") +
                              CertificateEntry("otter", "otter.example") +
                              CertificateEntry("mole", "mole.example", "expires = 2020-01-01"),
                          WithMutualTls()));
  const auto as = [&](const Subject& subject) {
    return As(Dial({.identity = authority_.Issue(subject)}));
  };
  EXPECT_EQ(as({.uris = {"spiffe://example/beaver"}}), "OK beaver");
  EXPECT_EQ(as({.dns = {"weasel.example", "otter.example"}}), "OK otter");
  EXPECT_EQ(as({.dns = {"spiffe.example"}, .uris = {"spiffe://example/beaver"}}), "OK beaver");
  EXPECT_EQ(as({.dns = {"mole.example"}}), kNobody);
  EXPECT_EQ(RefusedFor("expired"), 1);
  // A common name is no name here, and neither is a part of one.
  EXPECT_EQ(as({.common_name = "otter.example"}), kNobody);
  EXPECT_EQ(as({.common_name = "beaver", .dns = {"an.otter.example"}}), kNobody);
  EXPECT_EQ(as({.dns = {"*.example"}}), kNobody);
  EXPECT_EQ(RefusedFor("unknown_certificate"), 3);
}

TEST_F(ServerCallersTest, ATokenWinsOverACertificate) {
  StartSecure(
      WithCallers(CertificateEntry("beaver", "beaver.example") + CallerEntry("otter", kOtherToken),
                  WithMutualTls()));
  const auto channel = Dial({.identity = authority_.Issue({.dns = {"beaver.example"}})});
  EXPECT_EQ(As(channel), "OK beaver");
  EXPECT_EQ(As(channel, Bearer(kOtherToken)), "OK otter");
  EXPECT_EQ(As(channel, "Bearer castor_weasel"), kNobody);  // nor falls back to the certificate
  EXPECT_EQ(RefusedFor("unknown_token"), 1);
}

TEST_F(ServerCallersTest, WithoutAFileTheTenantIsTheCertificatesName) {
  StartSecure(WithMutualTls());
  const auto as = [&](const Subject& subject) {
    return As(Dial({.identity = authority_.Issue(subject)}));
  };
  EXPECT_EQ(as({.common_name = "beaver"}), "OK beaver");
  EXPECT_EQ(as({.common_name = "beaver", .dns = {"otter.example"}}), "OK otter.example");
  EXPECT_EQ(as({.common_name = "beaver", .dns = {"otter.example"}, .uris = {"spiffe://e/mole"}}),
            "OK spiffe://e/mole");
  EXPECT_EQ(as({.common_name = "a name of words"}), kNobody);
  EXPECT_EQ(as({}), kNobody);
  EXPECT_EQ(RefusedFor("unknown_certificate"), 2);
  // Nobody has a token here.
  EXPECT_EQ(As(Dial({.identity = authority_.Issue({.common_name = "beaver"})}), "Bearer x"),
            "OK beaver");
}

}  // namespace
}  // namespace castor::testing
