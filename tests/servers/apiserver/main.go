// The test bed's Kubernetes API server: kube-apiserver and the etcd it needs, in one process.
//
// It owns everything a test cluster keeps on disk: given an empty folder it makes keys, an
// administrator's token and a kubeconfig; given the same folder again it comes back with the same
// objects, the same port and the same credentials. Starting, watching and stopping this process is
// left to the Rust library in tests/.
//
//	kube-apiserver --data-dir DIR [--port N] [--exit-with-stdin] [-- kube-apiserver flags]
//
// Standard output carries one line, "ready https://127.0.0.1:PORT", once /readyz answers 200.
// DIR/admin.kubeconfig is complete by then. Everything else goes to standard error.
package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const (
	host = "127.0.0.1"
	// kube-apiserver waits a minute for clients that keep a watch open. Requests that are being answered
	// need far less, and the watches are to be cut, as they are when a real server goes.
	shutdownGrace = time.Second
	startupLimit  = 2 * time.Minute
	// Larger than etcd's default of 1.5 MiB and equal to the most that kube-apiserver's etcd client sends, so
	// that objects beyond the agent's frame limit can be stored.
	maxObjectBytes = 2 << 20
)

func main() {
	flags := flag.NewFlagSet("kube-apiserver", flag.ExitOnError)
	dataDir := flags.String("data-dir", "", "folder that keeps the cluster; made when missing (required)")
	port := flags.Int("port", 0, "HTTPS port on 127.0.0.1; 0 takes the port of the last start, else a free one")
	exitWithStdin := flags.Bool("exit-with-stdin", false, "shut down when standard input ends, as it does when the parent dies")
	_ = flags.Parse(os.Args[1:]) // ExitOnError: it does not return an error
	if *dataDir == "" {
		fmt.Fprintln(os.Stderr, "kube-apiserver: --data-dir is required")
		os.Exit(2)
	}

	code, err := run(*dataDir, *port, *exitWithStdin, flags.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube-apiserver:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// run serves until it is told to stop and returns kube-apiserver's exit code.
func run(dir string, port int, exitWithStdin bool, extraFlags []string) (int, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	token, err := adminToken(dir)
	if err != nil {
		return 0, fmt.Errorf("make the administrator's token: %w", err)
	}
	if err := writeIfMissing(filepath.Join(dir, "service-account.key"), keyutil.MakeEllipticPrivateKeyPEM); err != nil {
		return 0, fmt.Errorf("make the service account key: %w", err)
	}
	if port, err = choosePort(dir, port); err != nil {
		return 0, fmt.Errorf("choose a port: %w", err)
	}
	etcd, err := startEtcd(filepath.Join(dir, "etcd"))
	if err != nil {
		return 0, fmt.Errorf("start etcd: %w", err)
	}
	defer etcd.Close()

	// Before the command exists, because it starts to listen for signals on its own.
	limitShutdown()
	command := app.NewAPIServerCommand()
	command.SetArgs(append(serverFlags(dir, port, etcd), extraFlags...))
	if exitWithStdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stopSelf()
		}()
	}
	go func() {
		if err := announceReady(dir, port, token); err != nil {
			fmt.Fprintln(os.Stderr, "kube-apiserver:", err)
			os.Exit(1)
		}
	}()
	return cli.Run(command), nil
}

func serverFlags(dir string, port int, etcd *embed.Etcd) []string {
	key := filepath.Join(dir, "service-account.key")
	return []string{
		"--etcd-servers=http://" + etcd.Clients[0].Addr().String(),
		"--bind-address=" + host,
		"--advertise-address=" + host,
		"--external-hostname=localhost",
		"--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + filepath.Join(dir, "certs"),
		"--token-auth-file=" + filepath.Join(dir, "tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + key,
		"--service-account-signing-key-file=" + key,
		// Nothing here runs the controllers that make default service accounts and endpoints.
		"--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none",
	}
}

// startEtcd serves on loopback ports that the kernel chooses. Nothing dials the addresses that this
// only member advertises, so they may stay ":0", and the member keeps its identity from start to start.
func startEtcd(dir string) (*embed.Etcd, error) {
	anyPort := []url.URL{{Scheme: "http", Host: host + ":0"}}
	config := embed.NewConfig()
	config.Dir = dir
	config.ListenPeerUrls, config.AdvertisePeerUrls = anyPort, anyPort
	config.ListenClientUrls, config.AdvertiseClientUrls = anyPort, anyPort
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.MaxRequestBytes = maxObjectBytes
	config.EnableGRPCGateway = false // it would dial the advertised address
	config.LogLevel = "error"
	config.LogOutputs = []string{"stderr"}
	// A killed process loses nothing by this, only a crash of the machine would.
	config.UnsafeNoFsync = true

	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		etcd.Close()
		return nil, err
	case <-time.After(startupLimit):
		etcd.Close()
		return nil, fmt.Errorf("not ready after %s", startupLimit)
	}
}

// announceReady waits for /readyz, writes the kubeconfig and prints the one line of standard output.
func announceReady(dir string, port int, token string) error {
	server := "https://" + net.JoinHostPort(host, strconv.Itoa(port))
	deadline := time.Now().Add(startupLimit)
	for {
		ca, err := servingCA(filepath.Join(dir, "certs", "apiserver.crt"))
		if err == nil {
			err = checkReady(server, ca)
		}
		if err == nil {
			if err := writeKubeconfig(filepath.Join(dir, "admin.kubeconfig"), server, token, ca); err != nil {
				return fmt.Errorf("write the kubeconfig: %w", err)
			}
			fmt.Println("ready", server)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s: %w", startupLimit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func checkReady(server string, ca []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answered %s", response.Status)
	}
	return nil
}

// servingCA returns the last certificate of the chain that kube-apiserver signs for itself: its root.
func servingCA(path string) ([]byte, error) {
	rest, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var ca []byte
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		ca = pem.EncodeToMemory(block)
	}
	if ca == nil {
		return nil, errors.New(path + " holds no certificate")
	}
	return ca, nil
}

func writeKubeconfig(path, server, token string, ca []byte) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "admin"}
	config.CurrentContext = "test"
	return clientcmd.WriteToFile(*config, path)
}

// adminToken returns the token of a user in system:masters, from kube-apiserver's static token file.
func adminToken(dir string) (string, error) {
	path := filepath.Join(dir, "tokens.csv")
	err := writeIfMissing(path, func() ([]byte, error) {
		return []byte(rand.Text() + ",admin,admin,system:masters\n"), nil
	})
	if err != nil {
		return "", err
	}
	line, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token, _, _ := strings.Cut(string(line), ",")
	return token, nil
}

// choosePort remembers the port in the data folder. A new one comes from below the range that Linux
// hands out by itself, so that no outgoing connection holds it when the server is started again.
func choosePort(dir string, port int) (int, error) {
	path := filepath.Join(dir, "port")
	if port == 0 {
		saved, err := os.ReadFile(path)
		if err == nil {
			return strconv.Atoi(strings.TrimSpace(string(saved)))
		}
		if !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
		if port, err = freePort(); err != nil {
			return 0, err
		}
	}
	return port, os.WriteFile(path, []byte(strconv.Itoa(port)), 0o600)
}

func freePort() (int, error) {
	var err error
	for range 100 {
		port := 20000 + mathrand.IntN(12000)
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
	return 0, err
}

// writeIfMissing renames a finished file into place: a start that is killed halfway leaves none behind.
func writeIfMissing(path string, content func() ([]byte, error)) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	data, err := content()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// stopSelf asks for a shutdown as SIGTERM from outside does.
func stopSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}

// limitShutdown ends the process when draining takes longer than shutdownGrace. Nothing is lost by that:
// what etcd has acknowledged is in its log.
func limitShutdown() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		time.Sleep(shutdownGrace)
		os.Exit(0)
	}()
}
