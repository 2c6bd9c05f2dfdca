#include "control/controller/controller.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/files/open_files.hpp"
#include "base/log/end_in_time.hpp"
#include "base/log/log.hpp"
#include "control/controller/api.hpp"
#include "control/controller/attempt_secrets.hpp"
#include "control/controller/audit_keeper.hpp"
#include "control/controller/authority_files.hpp"
#include "control/controller/random_text.hpp"
#include "control/controller/recording.hpp"
#include "control/controller/registrar.hpp"
#include "control/controller/store_file.hpp"
#include "control/controller/vault.hpp"
#include "control/controller/watchdog.hpp"
#include "control/store/sqlite/file_lock.hpp"
#include "control/store/sqlite/sqlite_store.hpp"
#include "control/wire/objects.hpp"
#include "net/http/client.hpp"
#include "net/http/server.hpp"

namespace tutti::controller {
namespace {

constexpr std::size_t cluster_id_bytes = 8;

// How often it is looked whether the controller's certificate is to be made, or read, anew.
constexpr Duration certificate_looks_every = 5s;
constexpr Duration end_told_every = 24h;
constexpr std::size_t certificates_of_others_bytes_max = 1 << 20;

bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }

struct Listen {
  std::string host;
  std::uint16_t port = 0;
};

bool is_any_address(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  ::gethostname(name.data(), HOST_NAME_MAX);
  return name.data();
}

// Of this machine, by which others reach it.
std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const int family = at->ifa_addr->sa_family;
    const void* bytes = nullptr;
    if (family == AF_INET) bytes = &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr;
    if (family == AF_INET6) bytes = &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
    if (bytes != nullptr && ::inet_ntop(family, bytes, text.data(), text.size()) != nullptr)
      addresses.emplace_back(text.data());
  }
  ::freeifaddrs(all);
  return addresses;
}

// By which the controller may be called, for its certificate.
std::vector<std::string> addresses_of(const ControllerOptions& options, const std::string& host) {
  std::vector<std::string> addresses = options.tls_names;
  addresses.insert(addresses.end(), {host_name(), "localhost", "127.0.0.1", "::1"});
  const auto own = is_any_address(host) ? own_addresses() : std::vector<std::string>{host};
  addresses.insert(addresses.end(), own.begin(), own.end());
  std::erase(addresses, "");
  if (addresses.size() > pki::addresses_max) addresses.resize(pki::addresses_max);
  return addresses;
}

// By which nodes are told to call it.
std::string to_be_called(const ControllerOptions& options, const std::string& host) {
  if (!options.tls_names.empty()) return options.tls_names.front();
  if (!is_any_address(host)) return host.find(':') == std::string::npos ? host : "[" + host + "]";
  return host_name();
}

// Like a target, but the port may be 0.
Result<Listen> parse_listen(const std::string& text) {
  if (text.ends_with(":0")) {
    auto any_port = parse_listen(text.substr(0, text.size() - 1) + "1");
    if (!any_port) return any_port;
    return Listen{any_port->host, 0};
  }
  auto target = net::parse_target(text);
  if (!target) return std::move(target).error().within("--listen");
  return Listen{target->host, target->port};
}

// How it speaks on its port.
enum class Speech { plain, tls };

Result<Speech> speech_of(const ControllerOptions& options, const std::string& host) {
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return invalid("a certificate and its key go together")
        .remedy("give both --tls-certificate and --tls-key");
  }
  const bool is_asked_for = options.tls || !options.tls_certificate.empty();
  return is_loopback(host) && !is_asked_for ? Speech::plain : Speech::tls;
}

// None where a certificate of somebody else's does without: the folder is of an earlier version.
Result<std::optional<Registrar>> open_registrar(const ControllerOptions& options, const std::string& host) {
  auto authorities = read_authorities(options.folder);
  if (!authorities) return std::move(authorities).error();
  if (!*authorities && !options.tls_certificate.empty()) return std::optional<Registrar>();
  if (!*authorities)
    return invalid("there is no authority of the cluster, and tokens would cross the network in the clear")
        .within("--listen " + options.listen)
        .remedy("`tutti controller init --data " + options.folder +
                "` makes it; or give --tls-certificate and --tls-key, or listen on 127.0.0.1");
  auto registrar = Registrar::open(std::move(**authorities), {.folder = options.folder,
                                                              .addresses = addresses_of(options, host),
                                                              .node_life = options.certificate_life});
  if (!registrar) return std::move(registrar).error();
  return std::optional(std::move(*registrar));
}

// A certificate of somebody else's and its key. Their disk may not answer: they are read beside the loop, and
// what was read is taken at the next look.
class FilesOfOthers {
 public:
  FilesOfOthers(std::string certificate, std::string key)
      : files_{std::move(certificate), std::move(key)}, seen_(state_of(files_)) {}

  bool are_there() const { return !files_.certificate.empty(); }
  const std::string& certificate() const { return files_.certificate; }

  // What is in them now.
  Result<net::ServerIdentity> read_now() const { return identity_in(files_); }
  // What is in them, if they are others since it was asked last, or why they cannot be read.
  std::optional<Result<net::ServerIdentity>> look() {
    const std::lock_guard lock(desk_->mutex);
    auto found = std::exchange(desk_->found, std::nullopt);
    if (found) seen_ = found->state;
    if (!desk_->is_busy) read();
    if (!found) return std::nullopt;
    return std::move(found->identity);
  }

 private:
  struct Files {
    std::string certificate;
    std::string key;
  };
  // When they were written, and which files they are.
  using State = std::vector<std::int64_t>;
  struct Found {
    State state;
    Result<net::ServerIdentity> identity;
  };
  // Of the loop and of a thread that may be left behind.
  struct Desk {
    std::mutex mutex;
    bool is_busy = false;
    std::optional<Found> found;
  };

  static State state_of(const Files& files) {
    State state;
    for (const std::string& file : {files.certificate, files.key}) {
      struct stat found {};
      if (file.empty() || ::stat(file.c_str(), &found) != 0) found = {};
      state.insert(state.end(), {static_cast<std::int64_t>(found.st_ino), found.st_mtim.tv_sec,
                                 found.st_mtim.tv_nsec, found.st_size});
    }
    return state;
  }

  static Result<net::ServerIdentity> identity_in(const Files& files) {
    auto certificates = files::read_existing_file(files.certificate, certificates_of_others_bytes_max);
    if (!certificates) return std::move(certificates).error();
    auto key = files::read_existing_file(files.key, certificates_of_others_bytes_max);
    if (!key) return std::move(key).error();
    return net::ServerIdentity{std::move(*certificates), std::move(*key), ""};
  }

  // Where no thread can be started it is tried at the next look.
  void read() {
    try {
      std::thread([files = files_, seen = seen_, desk = desk_] {
        std::optional<Found> found;
        if (auto state = state_of(files); state != seen) found = Found{std::move(state), identity_in(files)};
        const std::lock_guard lock(desk->mutex);
        desk->found = std::move(found);
        desk->is_busy = false;
      }).detach();
      desk_->is_busy = true;
    } catch (const std::system_error& failure) {
      log::warning("cannot look at {}: {}", files_.certificate, failure.what());
    }
  }

  const Files files_;
  State seen_;
  std::shared_ptr<Desk> desk_ = std::make_shared<Desk>();
};

// What is shown to those who connect, before it ends: one of the cluster's own is made anew, and one of
// somebody else's is read again when its file is another one. Where there are both, nodes see the first.
class ShownCertificate {
 public:
  ShownCertificate(const ControllerOptions& options, std::string host, Registrar* registrar)
      : options_(options),
        host_(std::move(host)),
        registrar_(registrar),
        files_(options.tls_certificate, options.tls_key) {}

  // Before anybody connects; nothing where TLS is not spoken.
  Result<std::optional<net::ServerIdentity>> begin() {
    if (registrar_ == nullptr && !files_.are_there()) return std::optional<net::ServerIdentity>();
    if (files_.are_there()) {
      auto found = files_.read_now();
      if (!found) return std::move(found).error().within("--tls-certificate");
      of_others_ = std::move(*found);
    }
    auto identity = shown();
    if (!identity) return std::move(identity).error();
    return std::optional(std::move(*identity));
  }

  void look(net::Server& server) {
    if (registrar_ != nullptr) {
      tell_of_the_end();
      // A network may come up, and a host be called otherwise, long after the start.
      const bool is_called_otherwise = registrar_->set_addresses(addresses_of(options_, host_));
      if (is_called_otherwise || registrar_->is_due(now_on_the_wall())) renew(server);
    }
    if (!files_.are_there()) return;
    if (auto found = files_.look(); found) take(server, std::move(*found));
  }

  void tell_of_the_end() {
    const Instant now = now_steady();
    if (now < tell_again_) return;
    const std::string told = registrar_->ends_soon(now_on_the_wall());
    if (told.empty()) return;
    tell_again_ = now + end_told_every;
    log::warning("{}", told);
  }

  void renew(net::Server& server) {
    if (const auto used = show(server); !used)
      log::error("cannot renew the controller's certificate: {}", used.error().text());
  }

 private:
  Result<net::ServerIdentity> shown() {
    if (registrar_ == nullptr) return *of_others_;
    auto own = registrar_->server_identity(now_on_the_wall());
    if (!own || !of_others_) return own;
    return net::ServerIdentity{of_others_->certificates, of_others_->key, own->client_authorities,
                               own->certificates, own->key};
  }

  Result<> show(net::Server& server) {
    const auto identity = shown();
    return identity ? server.use(*identity) : Result<>(identity.error());
  }

  void take(net::Server& server, Result<net::ServerIdentity> found) {
    Result<> used;
    if (found) {
      auto before = std::exchange(of_others_, std::move(*found));
      used = show(server);
      if (!used) of_others_ = std::move(before);
    } else {
      used = found.error();
    }
    if (used)
      log::warning("{} is another certificate now: new connections see it", files_.certificate());
    else
      log::error("{} : {}; the one before it is shown still", files_.certificate(), used.error().text());
  }

  const ControllerOptions& options_;
  const std::string host_;
  Registrar* registrar_;
  FilesOfOthers files_;
  std::optional<net::ServerIdentity> of_others_;
  Instant tell_again_;  // of the end of the authority
};

}  // namespace

Result<> init_folder(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return failed(failure.message()).within("cannot make " + folder);
  ::chmod(folder.c_str(), 0700);
  const bool used = std::filesystem::exists(store_file(folder), failure);
  if (auto made = make_token(folder + "/admin.token", used); !made) return made;
  if (auto made = make_token(folder + "/join.token", used); !made) return made;
  if (auto made = make_authority_file(folder, now_on_the_wall()); !made) return made;
  auto authorities = read_authorities(folder);
  return authorities ? Result<>() : Result<>(std::move(authorities).error());
}

std::optional<pid_t> folder_holder(const std::string& folder) {
  const std::string store = store_file(folder);
  // The second is taken first, and may be gone.
  const auto holder = store::FileLock::holder_of(store, store + ".lock");
  return holder ? holder : store::FileLock::holder_of(store + ".lock", store + ".lock");
}

Result<> run_controller(const ControllerOptions& options,
                        const std::function<void(const std::string&)>& ready) {
  // Before all whose threads it ends without.
  const EndInTime end("controller");
  auto listen = parse_listen(options.listen);
  if (!listen) return std::move(listen).error();
  const auto speech = speech_of(options, listen->host);
  if (!speech) return speech.error();
  if (auto sound = check_login(options.login); !sound) return sound;
  const std::string remedy = "`tutti controller init --data " + options.folder + "` makes the tokens";
  auto admin = read_token(options.folder + "/admin.token");
  if (!admin) return std::move(admin).error().remedy(remedy);
  auto join = read_token(options.folder + "/join.token");
  if (!join) return std::move(join).error().remedy(remedy);
  std::optional<Registrar> registrar;
  if (*speech == Speech::tls) {
    auto opened = open_registrar(options, listen->host);
    if (!opened) return std::move(opened).error();
    registrar = std::move(*opened);
  }
  Registrar* const signs = registrar ? &*registrar : nullptr;
  auto store =
      store::SqliteStore::open(store_file(options.folder),
                               {.kept_key = wire::cluster_key(), .accept_older = options.accept_older_store});
  if (!store) return std::move(store).error();
  auto new_cluster_id = random_hex(cluster_id_bytes);
  if (!new_cluster_id) return std::move(new_cluster_id).error();

  std::optional<Recording> recording;
  Core::Ended ended;
  if (!options.record.empty()) {
    auto opened = Recording::open(options.record);
    if (!opened) return std::move(opened).error();
    recording.emplace(std::move(*opened));
    ended = [&](const cluster::Job& job) { recording->ended(job); };
  }

  ::signal(SIGPIPE, SIG_IGN);
  net::Loop loop;
  Hub* hub_address = nullptr;
  Api* api_address = nullptr;
  const auto deliver = [&](driver::Delivery delivery) {
    auto shared = std::make_shared<driver::Delivery>(std::move(delivery));
    loop.post([&hub_address, &api_address, signs, shared] {
      if (signs != nullptr) signs->hear(*shared);
      api_address->change(shared->doors);
      hub_address->deliver(std::move(*shared));
    });
  };
  WatchedStore watched_store(**store, now_steady);
  Watchdog watchdog(watched_store, store_file(options.folder), now_steady,
                    [&loop](std::function<void()> task) { loop.post(std::move(task)); });
  Core core(watched_store, deliver, std::move(ended), std::move(*new_cluster_id), options.keep);
  Hub hub(loop, core);
  hub_address = &hub;
  const auto per_second = static_cast<double>(options.requests_per_second);
  Explainer explainer;
  Janitor janitor(core, {.folder = options.folder,
                         .blobs_bytes_max = options.keep_blobs,
                         .blobs_age_max = options.keep_blobs_age});
  AuditKeeper audit(core, {options.folder, options.keep_audit, options.keep_audit_age});
  // Values go to nodes over TLS, or to those of this machine: in the clear nobody else can connect.
  Vault vault(core, options.folder);
  Api api(core, hub, explainer, janitor, audit, vault,
          {.tokens = {std::move(*admin), std::move(*join)},
           .blob_folder = options.folder + "/blobs",
           .requests = {.per_second = per_second, .burst = 2 * per_second},
           .login = options.login,
           .give_token = gives_tokens(core),
           .registrar = signs,
           .takes_join_token = signs == nullptr || options.allow_join_token});
  api_address = &api;
  net::ServerOptions port;
  port.address = listen->host;
  port.port = listen->port;
  ShownCertificate shown(options, listen->host, signs);
  auto identity = shown.begin();
  if (!identity) return std::move(identity).error();
  port.identity = std::move(*identity);
  net::limit_connections(port, files::files_to_give(files::raise_open_files().most));
  hub.limit_audience(audience_within(port.connections, port.connections_per_address));
  port.on_let_go = [](const std::string& remote, std::size_t bytes) {
    log::warning("somebody at {} reads too slowly and is let go: {} bytes waited", remote, bytes);
  };
  port.on_crowded = [](const std::string& remote) {
    log::warning("a request of somebody at {} is refused: too much is being sent at once", remote);
  };
  port.on_shut = [](const std::string& why) {
    log::error("nobody can connect now, and it is tried again: {}", why);
  };
  port.on_lost = [](const std::string& remote, const std::string& why) {
    log::error("the connection of somebody at {} has ended: {}", remote, why);
  };
  port.headers = {net::cluster_header};
  port.cluster = [&core] { return core.cluster_id(); };
  auto server = net::Server::listen(
      loop, port,
      [&](const std::shared_ptr<net::Exchange>& exchange) { api.handle(watchdog.watch(exchange)); },
      [&](const net::Request& head) { return api.admit(head); });
  if (!server) return std::move(server).error();
  vault.open();
  auto attempts = attempt_secrets(options.folder);
  if (!attempts) return std::move(attempts).error();
  core.give_attempts(*std::move(attempts));
  if (auto started = core.start(); !started) return started;
  if (auto started = audit.start(); !started) return started;
  api.change(core.doors_known());
  if (options.demands_isolation) hub.demand_isolation();
  hub.start();
  janitor.start();
  vault.start();
  if (signs != nullptr) signs->on_change = [&] { shown.renew(**server); };
  const auto certificate_looks = loop.every(certificate_looks_every, [&] { shown.look(**server); });
  const auto looks = loop.every(watchdog_looks_every, [&watchdog] {
    if (const std::string said = watchdog.look(); !said.empty()) log::warning("{}", said);
  });
  const auto signals = loop.when_asked_to_end([&](int signal) {
    log::warning("this controller ends: {}; ranks run on", ::strsignal(signal));
    end.begin();
    loop.stop();
  });
  const std::string port_text = ":" + std::to_string((*server)->port());
  const std::string address = listen->host + port_text;
  if (signs != nullptr) {
    signs->know(core.members_known(), core.absence());
    shown.renew(**server);
    hub.protect([signs](const std::string& node) { return signs->members().contains(node); });
    signs->set_address(to_be_called(options, listen->host) + port_text);
  }
  log::info("cluster {}: listening on {}", core.cluster_id(), address);
  ready(address);
  loop.run();
  api.stop();
  janitor.stop();
  audit.stop();
  vault.stop();
  core.stop();
  explainer.stop();
  return {};
}

}  // namespace tutti::controller
