// Publishes a message to a topic with franz-go and prints what a consumer in a group reads there.
//
//	round_trip BOOTSTRAP TOPIC [authority=FILE] [certificate=FILE key=FILE] [mechanism=NAME user=NAME password=SECRET] [token=TOKEN]
//
// Only with an authority, TLS is spoken. Exits with 1 and the error when the broker refuses.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const secondsMax = 30

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tlsConfig(said map[string]string) *tls.Config {
	authority, err := os.ReadFile(said["authority"])
	check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	config.RootCAs.AppendCertsFromPEM(authority)
	if said["certificate"] != "" {
		pair, err := tls.LoadX509KeyPair(said["certificate"], said["key"])
		check(err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func mechanism(said map[string]string) sasl.Mechanism {
	user, password := said["user"], said["password"]
	switch said["mechanism"] {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	default:
		return oauth.Auth{Token: said["token"]}.AsMechanism()
	}
}

func main() {
	bootstrap, topic, said := os.Args[1], os.Args[2], map[string]string{}
	for _, each := range os.Args[3:] {
		name, value, _ := strings.Cut(each, "=")
		said[name] = value
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumerGroup(topic),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DefaultProduceTopic(topic),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
	if said["authority"] != "" {
		options = append(options, kgo.DialTLSConfig(tlsConfig(said)))
	}
	if said["mechanism"] != "" {
		options = append(options, kgo.SASL(mechanism(said)))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), secondsMax*time.Second)
	defer cancel()
	check(client.Ping(ctx))
	check(client.ProduceSync(ctx, kgo.StringRecord("value")).FirstErr())
	fetches := client.PollFetches(ctx)
	check(fetches.Err())
	for _, record := range fetches.Records() {
		fmt.Println(string(record.Value))
	}
}
