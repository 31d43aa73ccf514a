// Tenants who are known are kept apart: regions of shared memory, requests and cancellations of one
// are not another's business, and neither is what the server says of itself.

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "castor/v1/server.grpc.pb.h"
#include "castor/v1/shared_memory.grpc.pb.h"
#include "tests/integration/access/secure_fixture.h"
#include "tests/integration/raw_client.h"
#include "tests/support/sanitizer.h"
#include "tests/support/shared_object.h"

namespace castor::testing {
namespace {

using Memory = v1::SharedMemoryService;

constexpr char kNotFound[] = "NOT_FOUND REGION_NOT_FOUND";

class ServerTenantsTest : public SecureServerTest {
 protected:
  void Start(int64_t max_regions = 8) {
    server::ServerOptions options =
        WithCallers(CallerEntry("beaver", "castor_beaver") + CallerEntry("otter", "castor_otter"));
    options.shared_memory = true;
    options.max_shared_memory_regions = max_regions;
    StartSecure(options);
    regions_ = Memory::NewStub(channel_);
  }

  // A context for a call of the tenant.
  static std::unique_ptr<grpc::ClientContext> Of(const std::string& tenant) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->AddMetadata("authorization", "Bearer castor_" + tenant);
    context->set_deadline(std::chrono::system_clock::now() + Patience(std::chrono::seconds(60)));
    return context;
  }

  std::string Register(const std::string& tenant, const std::string& name, const std::string& key) {
    v1::RegisterSharedMemoryRequest request;
    request.set_name(name);
    request.set_key(key);
    request.set_size(48);
    v1::RegisterSharedMemoryResponse response;
    return Outcome(regions_->RegisterSharedMemory(Of(tenant).get(), request, &response));
  }
  std::string Unregister(const std::string& tenant, const std::string& name) {
    v1::UnregisterSharedMemoryRequest request;
    request.set_name(name);
    v1::UnregisterSharedMemoryResponse response;
    return Outcome(regions_->UnregisterSharedMemory(Of(tenant).get(), request, &response));
  }
  // The tenant's regions, as "NAME KEY".
  std::vector<std::string> List(const std::string& tenant) {
    v1::ListSharedMemoryResponse response;
    EXPECT_EQ(Outcome(regions_->ListSharedMemory(Of(tenant).get(), {}, &response)), "OK");
    std::vector<std::string> regions;
    for (const auto& region : response.regions()) {
      regions.push_back(region.name() + " " + region.key());
    }
    return regions;
  }
  // Attend with its value in the region: the value's bytes come back, or an outcome.
  std::string AttendFrom(const std::string& tenant, const std::string& region) {
    v1::AttendRequest request = AttendOf(1);
    v1::SharedMemoryRef& ref = *request.mutable_value()->mutable_shared_memory();
    ref.set_region(region);
    ref.set_size(8);
    v1::AttendResponse response;
    const grpc::Status status = attention_->Attend(Of(tenant).get(), request, &response);
    return status.ok() ? response.output().raw() : Outcome(status);
  }
  std::string AttendInto(const std::string& tenant, const std::string& region) {
    v1::AttendRequest request = AttendOf(1);
    request.mutable_output()->set_region(region);
    request.mutable_output()->set_size(8);
    v1::AttendResponse response;
    return Outcome(attention_->Attend(Of(tenant).get(), request, &response));
  }

  std::unique_ptr<Memory::Stub> regions_;
};

// An object that a tenant may register.
SharedObject ObjectOf(const std::string& tenant) { return SharedObject(48, tenant + ":"); }

TEST_F(ServerTenantsTest, ARegionIsItsTenantsAlone) {
  Start();
  const SharedObject object = ObjectOf("beaver");
  object.Write(0, "8 bytes.");
  ASSERT_EQ(Register("beaver", "dam", object.key()), "OK");
  EXPECT_EQ(AttendFrom("beaver", "dam"), "8 bytes.");
  EXPECT_EQ(AttendFrom("otter", "dam"), std::string(kNotFound) + " value.shared_memory.region");
  EXPECT_EQ(AttendInto("otter", "dam"), std::string(kNotFound) + " output.region");
  EXPECT_EQ(AttendFrom("otter", "beaver/dam"),
            std::string(kNotFound) + " value.shared_memory.region");
  EXPECT_EQ(Unregister("otter", "dam"), kNotFound);
  EXPECT_TRUE(List("otter").empty());
  EXPECT_EQ(List("beaver"), std::vector<std::string>{"dam " + object.key()});
  EXPECT_EQ(object.Read(0, 8), "8 bytes.");
  EXPECT_EQ(Unregister("beaver", "dam"), "OK");
}

TEST_F(ServerTenantsTest, AnObjectsKeyBeginsWithItsTenant) {
  Start();
  const SharedObject beavers = ObjectOf("beaver"), anybodys(48);
  const SharedObject hers(48, "beaver"), longer(48, "beavers:");  // no colon; another name
  const char* const refused = "INVALID_ARGUMENT INVALID_FIELD key";
  for (const std::string& key :
       {beavers.key(), anybodys.key(), std::string("/otter"), std::string("/:"), std::string("")}) {
    EXPECT_EQ(Register("otter", "r", key), refused) << key;
  }
  EXPECT_EQ(Register("beaver", "r", hers.key()), refused);
  EXPECT_EQ(Register("beaver", "r", longer.key()), refused);
  EXPECT_EQ(Register("beaver", "r", beavers.key()), "OK");
  v1::ServerInfo info;
  const auto server = v1::ServerService::NewStub(channel_);
  ASSERT_EQ(Outcome(server->GetServerInfo(Of("otter").get(), {}, &info)), "OK");
  EXPECT_NE(info.ShortDebugString().find("\"/otter:\""), std::string::npos)
      << info.ShortDebugString();
}

TEST_F(ServerTenantsTest, TwoTenantsMayUseOneName) {
  Start();
  const SharedObject beavers = ObjectOf("beaver"), otters = ObjectOf("otter");
  beavers.Write(0, "beaver's");
  otters.Write(0, "otter's.");
  ASSERT_EQ(Register("beaver", "r", beavers.key()), "OK");
  ASSERT_EQ(Register("otter", "r", otters.key()), "OK");
  EXPECT_EQ(AttendFrom("beaver", "r"), "beaver's");
  EXPECT_EQ(AttendFrom("otter", "r"), "otter's.");
  EXPECT_EQ(AttendInto("otter", "r"), "OK");
  EXPECT_EQ(beavers.Read(0, 8), "beaver's");
  EXPECT_EQ(Unregister("otter", "r"), "OK");
  EXPECT_EQ(AttendFrom("beaver", "r"), "beaver's");
}

TEST_F(ServerTenantsTest, NobodyTakesAllRegions) {
  Start(4);
  const SharedObject beavers = ObjectOf("beaver"), otters = ObjectOf("otter");
  std::string outcome = "OK";
  int taken = 0;
  while (outcome == "OK" && taken < 10) {
    outcome = Register("beaver", std::to_string(taken++), beavers.key());
  }
  EXPECT_EQ(outcome, "RESOURCE_EXHAUSTED TOO_MANY_REGIONS");
  EXPECT_EQ(taken - 1, 3);
  EXPECT_EQ(Register("otter", "0", otters.key()), "OK");
}

// ---- requests ----------------------------------------------------------------------------------

TEST_F(ServerTenantsTest, EqualIdsAndCancellationsDoNotMeet) {
  Start();
  engine_->Hold();
  struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    v1::AttendRequest request;
    v1::AttendResponse response = {};
    std::promise<grpc::Status> done = {};
  };
  Call beavers{Of("beaver"), AttendOf(1, "the same")}, otters{Of("otter"), AttendOf(2, "the same")};
  for (Call* const call : {&beavers, &otters}) {
    attention_->async()->Attend(call->context.get(), &call->request, &call->response,
                                [call](grpc::Status status) { call->done.set_value(status); });
  }
  ASSERT_TRUE(engine_->AwaitWaiting(2));
  otters.context->TryCancel();
  EXPECT_EQ(otters.done.get_future().get().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(engine_->AwaitWaiting(1));
  engine_->Release();
  EXPECT_EQ(Outcome(beavers.done.get_future().get()), "OK");
  EXPECT_EQ(beavers.response.output().raw(), beavers.request.value().raw());
  EXPECT_EQ(beavers.response.request_id(), "the same");
}

// ---- metrics -----------------------------------------------------------------------------------

class ServerScrapesTest : public SecureServerTest {
 protected:
  // The status line, and the page if that is wanted.
  std::string Get(const std::string& header, std::string* page = nullptr) {
    RawClient client(server_->metrics_port());
    client.Send("GET /metrics HTTP/1.0\r\n" + header + "\r\n");
    const std::string answer = client.ReadAll();
    if (page != nullptr) *page = answer;
    return answer.substr(0, answer.find('\r'));
  }
  static std::string Bearer(const std::string& token) {
    return "Authorization: Bearer " + token + "\r\n";
  }
  static std::string Basic(const std::string& name_and_password) {
    return "Authorization: Basic " + absl::Base64Escape(name_and_password) + "\r\n";
  }
};

TEST_F(ServerScrapesTest, MetricsAreForWhoMayReadThem) {
  server::ServerOptions options = WithCallers(
      CallerEntry("beaver", "castor_beaver") +
      CallerEntry("owl", "castor_owl", "allow = [\"metrics\"]") +
      CallerEntry("mole", "castor_mole", "allow = [\"metrics\"]\nexpires = 2020-01-01"));
  options.access.metrics_callers = true;
  StartSecure(options);
  constexpr char kOk[] = "HTTP/1.1 200 OK", kWho[] = "HTTP/1.1 401 Unauthorized",
                 kMayNotRead[] = "HTTP/1.1 403 Forbidden";
  std::string page;
  EXPECT_EQ(Get(Bearer("castor_owl"), &page), kOk);
  EXPECT_NE(page.find("castor_connections "), std::string::npos);
  EXPECT_EQ(Get(Basic("owl:castor_owl")), kOk);
  for (const std::string& header :
       {std::string(), Bearer("castor_weasel"), Bearer("castor_mole"), Basic("owl:castor_beaver"),
        Basic("beaver:castor_owl"), Basic("owl:"), Basic("castor_owl"), Basic(":castor_owl"),
        Basic("owl:castor_owl:"), std::string("Authorization: Basic castor_owl\r\n"),
        std::string("Authorization: \r\n"), std::string("Authorization: Bearer \r\n"),
        Bearer(std::string(4000, 'a')), Bearer("castor_owl") + Bearer("castor_owl"),
        Bearer("castor_owl") + Bearer("castor_weasel"),
        Basic("owl:castor_owl") + Bearer("castor_owl"),
        "Authorization: \r\n" + Bearer("castor_owl"),
        Bearer("castor_owl") + "authorization: \r\n"}) {
    EXPECT_EQ(Get(header, &page), kWho) << header;
    EXPECT_EQ(page.find("castor_connections"), std::string::npos);
  }
  for (const std::string& header : {Bearer("castor_beaver"), Basic("beaver:castor_beaver")}) {
    EXPECT_EQ(Get(header, &page), kMayNotRead);
    EXPECT_EQ(page.find("castor_connections"), std::string::npos);
  }
  // Reading metrics is all that it may.
  EXPECT_EQ(Outcome(Attend(channel_, "Bearer castor_owl")), "PERMISSION_DENIED PERMISSION_DENIED");
  EXPECT_EQ(Outcome(Attend(channel_, "Bearer castor_beaver")), "OK");
  ReplaceCallers(CallerEntry("owl", "castor_barn_owl", "allow = [\"metrics\"]"));
  EXPECT_TRUE(Await([&] { return Get(Bearer("castor_barn_owl")) == kOk; }));
  EXPECT_EQ(Get(Bearer("castor_owl")), kWho);
}

TEST_F(ServerScrapesTest, OverTlsTheyHaveTheCertificateOfNow) {
  server::ServerOptions options = WithTls();
  options.access.metrics_tls = true;
  StartSecure(options);
  const auto shown = [this] {
    TlsClient client(server_->metrics_port(), Trusting());
    client.Enter();
    return client.server_certificate();
  };
  EXPECT_EQ(shown(), pair_.certificate);
  const KeyPair next = authority_.IssueForLocalhost();
  ReplaceText(folder_ / "server.pem", next.certificate);
  ReplaceText(folder_ / "server.key", next.key);
  EXPECT_TRUE(Await([&] { return shown() == next.certificate; }));
  EXPECT_NE(Get(""), "HTTP/1.1 200 OK") << "in plaintext";
}

}  // namespace
}  // namespace castor::testing
