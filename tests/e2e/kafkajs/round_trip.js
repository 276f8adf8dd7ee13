// Publishes a message to a topic with KafkaJS and prints what a consumer in a group reads there.
//
//   round_trip.js BOOTSTRAP TOPIC [authority=FILE] [certificate=FILE key=FILE] [mechanism=NAME user=NAME password=SECRET] [token=TOKEN]
//
// Only with an authority, TLS is spoken. Exits with 1 and the error when the broker refuses.
const { readFileSync } = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const MS_MAX = 30000
const [bootstrap, topic, ...more] = process.argv.slice(2)
const said = Object.fromEntries(
  more.map((each) => [each.slice(0, each.indexOf('=')), each.slice(each.indexOf('=') + 1)]),
)

function ssl() {
  if (!said.authority) return undefined
  const read = (file) => file && readFileSync(file, 'utf-8')
  return { ca: [read(said.authority)], cert: read(said.certificate), key: read(said.key) }
}

function sasl() {
  if (!said.mechanism) return undefined
  if (said.mechanism === 'OAUTHBEARER') {
    return { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: said.token }) }
  }
  return { mechanism: said.mechanism.toLowerCase(), username: said.user, password: said.password }
}

function failed(error) {
  console.error(error.message)
  process.exit(1)
}

async function run() {
  const kafka = new Kafka({
    brokers: [bootstrap],
    ssl: ssl(),
    sasl: sasl(),
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, retries: 8 },
  })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true })
  await admin.disconnect()
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value: 'value' }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ message }) => {
      console.log(message.value.toString())
      setImmediate(() => consumer.disconnect().then(() => process.exit(0), failed))
    },
  })
}

setTimeout(() => failed(new Error('no message came')), MS_MAX)
run().catch(failed)
