// What OpenAI's SDK for Node makes of a server's answers: see run.py.   sdk.mjs PACKAGE URL TEXTS
const [name, baseURL, texts] = process.argv.slice(2);
const { default: OpenAI } = await import(name);
const client = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0 });
const embed = async (options) => {
  const body = { model: "minilm", input: JSON.parse(texts), ...options };
  return (await client.embeddings.create(body)).data.map((each) => each.embedding);
};
const answers = { default: await embed({}), models: [] };
for (const form of ["float", "base64"]) answers[form] = await embed({ encoding_format: form });
for await (const model of client.models.list()) answers.models.push(model.id);
await embed({ model: "strange" }).catch((e) => { answers.error = [e.status, e.code]; });
console.log(JSON.stringify(answers));
